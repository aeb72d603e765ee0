#!/usr/bin/env python3
"""A small blog with two tenants, as an application beside Rowbell: its own pages, its own API, its own idea of who may read
what. It knows Rowbell only as the stream that its pages follow. dev/up starts it.

Environment: DATABASE_URL; BLOG_GATEWAYS, URLs of gateways with blanks between; BLOG_TICKET_SECRET, the HS256 secret of
gateways that run with --auth jwt (without it the gateways let everybody hear everything); BLOG_TICKET_SECONDS, how long a
ticket is good. Argument: the port, 0 for any; or --ticket SCOPE, which writes a ticket for a developer.

A visitor's tenant is a part of the path here. A real application takes it from the session of who is logged in.
"""
import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = {
    "/": ("text/html; charset=utf-8", f"{HERE}/index.html"),
    "/blog.js": ("text/javascript; charset=utf-8", f"{HERE}/blog.js"),
    "/blog.css": ("text/css; charset=utf-8", f"{HERE}/blog.css"),
    "/rowbell.js": ("text/javascript; charset=utf-8", f"{HERE}/../../client/rowbell.js"),
}
TENANTS = ("acme", "globex")
TITLE_MAX = 200
TICKET_SECONDS = int(os.environ.get("BLOG_TICKET_SECONDS", 300))

LIST = "select coalesce(json_agg(p order by p.id), '[]') from posts p where tenant = :'tenant'"
READ = "select row_to_json(p) from posts p where tenant = :'tenant' and id = :'id'"
ADD = "insert into posts (id, tenant, title) values (gen_random_uuid()::text, :'tenant', :'title') returning to_json(id)"
EDIT = """update posts set title = :'title', updated_at = now() where tenant = :'tenant' and id = :'id'
          returning row_to_json(posts)"""
DELETE = "delete from posts where tenant = :'tenant' and id = :'id' returning to_json(id)"


def query(sql, **values):
    """One statement by psql, which every machine with PostgreSQL has; :'name' in it is quoted by psql. The one value of its
    result as text, "" when there is no row."""
    command = ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", os.environ["DATABASE_URL"]]
    for name, value in values.items():
        command += ["-v", f"{name}={value}"]
    return subprocess.run(command, input=sql, capture_output=True, text=True, check=True).stdout.strip()


def ticket(scope, secret):
    """A JSON Web Token (RFC 7519) that admits to the changes of one scope, which is a tenant here."""
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims = {"scopes": [scope], "exp": int(time.time()) + TICKET_SECONDS}
    pieces = [json.dumps(piece, separators=(",", ":")).encode() for piece in ({"alg": "HS256", "typ": "JWT"}, claims)]
    text = b".".join(map(part, pieces))
    return (text + b"." + part(hmac.new(secret.encode(), text, hashlib.sha256).digest())).decode()


def stream_urls(tenant):
    """Where a page of the tenant may follow the stream: any gateway will do. (Behind a proxy it would be one URL.)"""
    secret = os.environ.get("BLOG_TICKET_SECRET")
    query = f"?ticket={ticket(tenant, secret)}" if secret else ""
    return [f"{gateway}/events{query}" for gateway in os.environ["BLOG_GATEWAYS"].split()]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        path = urlsplit(self.path).path
        if path in FILES:
            kind, file = FILES[path]
            with open(file, "rb") as opened:
                self.answer(200, opened.read(), kind)
        else:
            self.api("GET", path)

    def do_POST(self):
        self.api("POST", urlsplit(self.path).path)

    def do_PUT(self):
        self.api("PUT", urlsplit(self.path).path)

    def do_DELETE(self):
        self.api("DELETE", urlsplit(self.path).path)

    def api(self, method, path):
        match = re.fullmatch(r"/api/([a-z]+)/(stream|posts)(?:/([^/]+))?", path)
        if not match or match[1] not in TENANTS:
            return self.answer(404)
        tenant, what, key = match[1], match[2], match[3]
        title = self.title() if method in ("POST", "PUT") else None
        if method in ("POST", "PUT") and title is None:
            return self.answer(400)
        values = {"tenant": tenant, "id": unquote(key or ""), "title": title or ""}
        statement = {
            ("GET", False): LIST, ("GET", True): READ, ("POST", False): ADD, ("PUT", True): EDIT, ("DELETE", True): DELETE,
        }.get((method, key is not None))
        if what == "stream" and method == "GET" and key is None:
            self.answer(200, json.dumps(stream_urls(tenant)).encode())
        elif what == "posts" and statement and "\0" not in "".join(values.values()):
            found = query(statement, **values)
            self.answer(200 if found else 404, found.encode())
        else:
            self.answer(405)

    def title(self):
        """What was sent as a title, None if it is not one."""
        length = int(self.headers.get("Content-Length") or 0)
        try:
            title = json.loads(self.rfile.read(length))["title"] if length < 10000 else None
        except (ValueError, KeyError, TypeError):
            return None
        return title if isinstance(title, str) and 0 < len(title) <= TITLE_MAX else None

    def answer(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if sys.argv[1] == "--ticket":
    print(ticket(sys.argv[2], os.environ["BLOG_TICKET_SECRET"]))
    sys.exit()
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(f"level=info event=started listen=127.0.0.1:{server.server_port} ", file=sys.stderr, flush=True)
server.serve_forever()
