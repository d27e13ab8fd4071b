"""A shop with four workers, each 40 ms a request. As with all synchronous workers, a client that leaves stops nothing."""
import os
import threading
import time
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/hang":
        time.sleep(60)
    time.sleep(0.04)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(path) + 6))])
    return [f"done {path}\n".encode()]


class Server(WSGIServer):
    request_queue_size = 1024


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


if __name__ == "__main__":  # or: gunicorn --workers 4 --bind 127.0.0.1:8000 app:application
    server = make_server("127.0.0.1", int(os.environ.get("PORT", 8000)), application, Server, Quiet)

    def work():
        while True:
            server.handle_request()

    for _ in range(4):
        threading.Thread(target=work).start()
