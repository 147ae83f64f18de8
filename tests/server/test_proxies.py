"""The server behind a proxy: a real nginx or Caddy, which reuse connections and forward upgrades.

These tests need `nginx` and `caddy`.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import time

import pytest
from both_fronts import JSON, Connection, append, request
from served_streams import Served, free_port
from test_upgrade import H2C, INNER, WEBSOCKET, upgraded

NGINX = """
daemon off; master_process off;
pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream fourfold {{ server 127.0.0.1:{server}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 32m;
    location / {{
      proxy_pass http://fourfold; proxy_http_version 1.1;
      proxy_set_header Host $host; proxy_buffering off; proxy_read_timeout 75s;
      {upgrade}
    }}
  }}
}}
"""
RECOMMENDED = 'proxy_set_header Connection "";'
RECIPE = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;"
CADDY = """
{{
  admin off
  auto_https off
}}
http://:{port} {{
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:{server} {{
    flush_interval -1
    {upgrade}
  }}
}}
"""
KINDS = {
    "nginx": ("nginx", NGINX, RECOMMENDED),
    "nginx-websocket-recipe": ("nginx", NGINX, RECIPE),
    "caddy": ("caddy", CADDY, "header_up -Upgrade\nheader_up -Connection"),
    "caddy-default": ("caddy", CADDY, ""),
}


class Proxied:
    """A proxy and its server."""

    def __init__(self, folder, kind, options):
        program, template, upgrade = KINDS[kind]
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
        self.served = Served(folder / "store", options=options)
        self.port = free_port()
        folder.chmod(0o755)
        config = folder / "proxy.conf"
        values = {"folder": folder, "port": self.port, "server": self.served.port}
        config.write_text(template.format(upgrade=upgrade, **values))
        if program == "nginx":
            command = ["nginx", "-e", str(folder / "start.log"), "-c", str(config)]
        else:
            command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(config)]
        with (folder / "proxy.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "HOME": str(folder)}
            )
        deadline = time.monotonic() + 30
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                pytest.fail(f"{program} did not start: {(folder / 'proxy.log').read_text()}")
            time.sleep(0.05)

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        # Asked to stop, a proxy may wait for its readers.
        self.process.kill()
        self.process.wait(30)
        self.served.kill()

    def ask(self, sent, answers=1):
        with Connection(self.port) as connection:
            connection.send(sent.replace(b"Host: x", b"Host: localhost"))
            return [connection.answer() for _ in range(answers)]

    def records(self, name):
        return json.loads(self.served.stream("GET", name).text)


@pytest.fixture(scope="module", params=[(), ("--no-fast-front",)], ids=["fast", "plain"])
def options(request):
    return request.param


@pytest.fixture(scope="module", params=KINDS)
def proxied(request, options, tmp_path_factory):
    made = Proxied(tmp_path_factory.mktemp("proxied"), request.param, options)
    yield made
    made.stop()


@pytest.mark.parametrize("headers", [{}, H2C, WEBSOCKET], ids=["none", "h2c", "websocket"])
def test_bodies_pass_a_proxy_unchanged(proxied, headers):
    name = f"s{len(headers)}"
    put = request("PUT", name, b'["first"]', content_type=JSON)
    assert proxied.ask(upgraded(put, headers))[0][0] == 201
    for number in range(5):
        sent = append(name, b"%d" % number)
        assert proxied.ask(upgraded(sent, headers))[0][0] == 204
    assert proxied.records(name) == ["first", 0, 1, 2, 3, 4]
    assert proxied.ask(upgraded(request("GET", name), headers))[0][0] == 200


@pytest.mark.parametrize("headers", [{}, H2C, WEBSOCKET], ids=["none", "h2c", "websocket"])
def test_request_inside_a_body_is_never_answered(proxied, headers):
    name = f"t{len(headers)}"
    assert proxied.ask(request("PUT", name, content_type="text/plain"))[0][0] == 201
    for _ in range(5):
        sent = upgraded(append(name, INNER, "text/plain"), headers)
        assert proxied.ask(sent)[0][0] == 204
        # Another client, whose request may take the same connection to the server.
        assert proxied.ask(request("GET", "no-such-stream"))[0][0] == 404
    assert proxied.served.stream("GET", name).text == INNER * 5


def test_events_pass_a_proxy_without_delay(proxied):
    proxied.ask(request("PUT", "live", content_type=JSON))
    client = http.client.HTTPConnection("localhost", proxied.port, timeout=30)
    client.request("GET", "/v1/stream/live?offset=now&live=sse")
    response = client.getresponse()
    assert response.status == 200
    result = response.read1(65536)
    assert b"event: control" in result
    assert proxied.served.stream("POST", "live", b'"now"', content_type=JSON).status == 204
    while b'"now"' not in result:
        part = response.read1(65536)
        assert part, result
        result += part
    client.close()
