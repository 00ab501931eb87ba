"""The app that is released."""


def greet(name: str) -> str:
    return f"hello, {name}"
