"""The beginning of a policy: a checkpoint that nobody opens, and two cases, or one arm with a case in tokens."""

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
ONE_ARM = f"""{TOY}[arms.one]
kind = "tokenline"
backend = "torch"

[[cases]]
name = "long"
max_tokens = 4
prompt_token_ids = [1, 2, 3, 4, 5, 6, 7, 8]

"""
