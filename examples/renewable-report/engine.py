"""A search engine for this example alone: answers as SearXNG does, on loopback, from pages.json, which is made up.

python3 engine.py COMMAND [ARGUMENT…]    # runs the command with AGENTFS_TOOLS_WEB_SEARCH_URL set, and ends with it
"""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PAGES = json.loads(Path(__file__).with_name("pages.json").read_text(encoding="utf-8"))


def found(query: str) -> list[dict[str, str]]:
    """Return the pages that share a word of more than three letters with a query, the best first."""
    asked = _words(query)
    ranked = sorted(PAGES, key=lambda page: -len(asked & _words(" ".join(page.values()))))
    return [page for page in ranked if asked & _words(" ".join(page.values()))][:3]


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}


class Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query).get("q", [""])[0]
        body = json.dumps({"query": query, "results": found(query)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


def main() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        environment = {**os.environ, "AGENTFS_TOOLS_WEB_SEARCH_URL": url}
        code = subprocess.run(sys.argv[1:], env=environment, check=False).returncode
        server.shutdown()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
