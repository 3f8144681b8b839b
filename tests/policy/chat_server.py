"""A small real server of chat completions, which does what it is told to."""

import http.server
import json
import socket
import threading
import time


def good(request):
    """What a server answers: the question, repeated, and counts that depend on it."""
    text = request["messages"][-1]["content"]
    usage = {"prompt_tokens": 100 + int(text), "completion_tokens": 10 + int(text)}
    return {"choices": [{"message": {"content": f"answer to {text}"}, "finish_reason": "stop"}], "usage": usage}


class Server:
    """Answers each request with what `plan` yields next: a status, an answer or a mischief; then it is good."""

    def __init__(self, *plan, port=0):
        self.plan, self.requests, self.times = list(plan), [], []
        self.paths, self.headers = [], []
        self.lock, self.open, self.most_open = threading.Lock(), 0, 0
        self.models = 200, {"data": [{"id": "only", "max_model_len": 4096}]}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.note(self)
                status, answer = outer.models
                self.reply(status, json.dumps(answer).encode())

            def do_POST(self):
                outer.serve(self)

            def reply(self, status, body, length=None, **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # clients that give up

        self.listener = Listener(("127.0.0.1", port), Handler)
        self.port = self.listener.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        threading.Thread(target=self.listener.serve_forever, args=(0.01,), daemon=True).start()

    def note(self, handler):
        self.paths.append(handler.path)
        self.headers.append(handler.headers)  # which are looked up whatever their case

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.requests.append(body)
            self.note(handler)
            self.times.append(time.monotonic())
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            step = self.plan.pop(0) if self.plan else good
        try:
            if callable(step):
                step = step(body)
            if isinstance(step, tuple):
                status, answer, headers = step
                handler.reply(status, json.dumps(answer).encode(), **headers)
            elif isinstance(step, dict):
                handler.reply(200, json.dumps(step).encode())
            elif isinstance(step, bytes):
                handler.reply(200, step)
            else:
                getattr(self, step)(handler, body)
        finally:
            with self.lock:
                self.open -= 1

    def hang(self, handler, body):
        time.sleep(2)

    def drip(self, handler, body):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(30):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)

    def break_off(self, handler, body):
        answer = json.dumps(good(body)).encode()
        handler.reply(200, answer[:20], length=len(answer))
        handler.close_connection = True

    def die(self, handler, body):
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    def stop(self):
        self.listener.shutdown()
        self.listener.server_close()


def status(number, message="no", code=None, headers=None, **more):
    return number, {"error": {"message": message, "code": code, **more}}, headers or {}
