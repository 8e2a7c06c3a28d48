"""The beginning of a program that serves: what every small server of these tests does alike."""

SERVER = """\
import http.server, json, sys, time


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_GET(self):
        self.begin(200)

    def begin(self, status):
        self.send_response(status)
        self.end_headers()

    def asked(self):
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def event(self, value, last=False):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\\n\\n")
        if last:
            self.wfile.write(b"data: [DONE]\\n\\n")
        self.wfile.flush()


"""
