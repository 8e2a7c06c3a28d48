"""The beginning of a policy: a checkpoint that nobody opens, and two cases."""

TOY = """\
schema = 1

[checkpoint]
name = "toy"
model = "toy"

"""
HEAD = f"""\
{TOY}[[cases]]
name = "greeting"
max_tokens = 4
prompt = "Good day"

[[cases]]
name = "farewell"
max_tokens = 4
prompt = "Good night"

"""
