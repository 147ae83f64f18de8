"""TLS of the server with real clients, on both HTTP front ends; and Unix sockets."""

from __future__ import annotations

import http.client
import signal
import socket
import ssl
import stat
import time

import pytest
from both_fronts import JSON
from click.testing import CliRunner
from served_streams import Served
from served_tls import TlsServed, replace_certificate, write_certificate

import fourfold
from fourfold.cli.main import app
from fourfold.errors import InvalidConfig, Refused
from fourfold.server import unix_socket
from fourfold.server.tls import Certificate

FRONTS = ("--fast-front", "--no-fast-front")
HASTY = {"FOURFOLD_SERVER_HANDSHAKE_S": "0.3"}


@pytest.fixture(scope="module", params=FRONTS)
def served(tmp_path_factory, request):
    server = TlsServed(tmp_path_factory.mktemp("tls"), request.param, environment=HASTY)
    yield server
    server.kill()


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_tls_connection_appends_and_reads(served):
    assert served.stream("PUT", "orders", content_type=JSON).status == 201
    connection = served.connect()
    for number in range(3):
        connection.request(
            "POST", "/v1/stream/orders", b'{"n": %d}' % number, {"Content-Type": JSON}
        )
        response = connection.getresponse()
        assert (response.status, response.read()) == (204, b"")
    assert connection.sock.version() == "TLSv1.3"
    connection.close()
    assert served.stream("GET", "orders").text == b'[{"n": 0},{"n": 1},{"n": 2}]'


def test_new_stream_is_located_by_https(served):
    location = served.stream("PUT", "located", content_type=JSON).getheader("location")
    assert location == f"https://localhost:{served.port}/v1/stream/located"


def test_server_sent_events_arrive_over_tls(served):
    served.stream("PUT", "live", content_type=JSON)
    reader = served.connect()
    reader.request("GET", "/v1/stream/live?offset=-1&live=sse")
    response = reader.getresponse()
    served.stream("POST", "live", b'{"n": 1}', content_type=JSON)
    lines = iter(response.readline, b"")
    assert any(b'{"n": 1}' in line for line in lines)
    reader.close()


def test_python_client_connects_over_tls(served):
    address = f"https://localhost:{served.port}"
    with fourfold.connect(address, verify=str(served.files[0])) as store:
        store.streams.create("by-client", JSON).append({"n": 1})
        records = store.streams.open("by-client").read()
        assert [record.payload for record in records] == [b'{"n":1}']


def test_client_that_never_ends_its_handshake_is_cut(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as silent:
        assert silent.recv(1) == b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as partial:
        partial.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert partial.recv(1) == b""
    assert served.ask("GET", "/livez").status == 200


def test_plain_http_gets_no_http_response(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not plain.recv(1 << 16).startswith(b"HTTP")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_current_versions_of_tls_are_accepted(served, version):
    context = ssl.create_default_context(cafile=str(served.files[0]))
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=30) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as connection,
    ):
        assert connection.version() == version.name.replace("_", ".")


def test_older_versions_of_tls_are_disabled(tmp_path):
    # Clients of today refuse them too, so the setting itself is checked.
    context = Certificate(*write_certificate(tmp_path / "tls")).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_sighup_loads_the_new_certificate_and_keeps_connections(tmp_path):
    served = TlsServed(tmp_path)
    try:
        connection = served.connect()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        assert served.name() == "localhost"
        replace_certificate(served.files, tmp_path / "new", "renewed")
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: served.name() == "renewed")
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        assert served.stop() == 0


def test_settings_name_the_certificate(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root):
        pass
    write_certificate(root / "tls")
    environment = {
        "FOURFOLD_SERVER_TLS_CERT": "tls/server.pem",
        "FOURFOLD_SERVER_TLS_KEY": "tls/server.key",
    }

    class BySettings(TlsServed):
        def __init__(self):
            self.files = (root / "tls" / "server.pem", root / "tls" / "server.key")
            Served.__init__(self, root, environment=environment)

    served = BySettings()
    assert served.ask("GET", "/livez").status == 200
    served.kill()


def test_changed_files_are_loaded_without_a_signal(tmp_path):
    files = write_certificate(tmp_path / "tls")
    with Certificate(*files, check_s=0.01) as certificate:
        before = certificate._current
        files[0].write_bytes(write_certificate(tmp_path / "new")[0].read_bytes())
        wait_until(lambda: certificate._failed_stamp)
        assert certificate._current is before
        files[1].write_bytes((tmp_path / "new" / "server.key").read_bytes())
        wait_until(lambda: certificate._current is not before)


def test_certificate_that_does_not_fit_its_key_is_refused(tmp_path):
    certificate, _ = write_certificate(tmp_path / "one")
    _, key = write_certificate(tmp_path / "two")
    with pytest.raises(InvalidConfig, match="cannot load certificate"):
        Certificate(certificate, key)
    with pytest.raises(InvalidConfig, match="No such file"):
        Certificate(certificate, tmp_path / "missing")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--tls-cert", "a.pem"), "belong together"),
        (("--unix", "a.sock", "--listen-fd", "3"), "exclude each other"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(tmp_path, options, reason):
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "store"), *options])
    assert done.exit_code == 2
    assert reason in done.output
    assert not (tmp_path / "store").exists()


def test_settings_with_a_certificate_and_no_key_are_refused(tmp_path):
    environment = {"FOURFOLD_SERVER_TLS_CERT": "server.pem"}
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "store")], env=environment)
    assert isinstance(done.exception, InvalidConfig)
    assert "must both be set" in str(done.exception)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(("proxies", "scheme"), [("127.0.0.1", "https"), ("192.0.2.1", "http")])
def test_only_trusted_proxies_state_the_scheme(tmp_path, front, proxies, scheme):
    environment = {"FOURFOLD_SERVER_TRUSTED_PROXIES": proxies}
    served = Served(tmp_path / "store", options=(front,), environment=environment)
    headers = {"Content-Type": JSON, "X-Forwarded-Proto": "https"}
    response = served.ask("PUT", "/v1/stream/orders", headers=headers)
    assert response.getheader("location").startswith(f"{scheme}://")
    served.kill()


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.sock.close()
            raise


class UnixServed(Served):
    """`fourfold serve --unix`."""

    def __init__(self, folder, *options):
        self.path = folder / "s.sock"
        super().__init__(folder / "store", options=("--unix", str(self.path), *options))

    def ask(self, method, path, body=None, headers=None):
        connection = UnixConnection(self.path)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        response.text = response.read()
        connection.close()
        return response


@pytest.mark.parametrize("front", FRONTS)
def test_unix_socket_serves_its_owner_and_group(tmp_path, front):
    served = UnixServed(tmp_path, front)
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o660
    assert served.stream("PUT", "orders", content_type=JSON).status == 201
    assert served.stream("POST", "orders", b'{"n": 1}', content_type=JSON).status == 204
    assert served.stream("GET", "orders").text == b'[{"n": 1}]'
    assert served.stop() == 0
    assert not served.path.exists()


def test_unix_socket_of_a_killed_server_is_replaced(tmp_path):
    served = UnixServed(tmp_path)
    served.kill()
    assert served.path.exists()
    served.start()
    assert served.ask("GET", "/livez").status == 200
    with (
        pytest.raises(Refused, match="another process listens"),
        unix_socket.listen(served.path, 1),
    ):
        pass
    assert served.ask("GET", "/livez").status == 200
    served.kill()


def test_file_that_is_not_a_socket_is_never_replaced(tmp_path):
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(Refused, match="not a socket"), unix_socket.listen(path, 1):
        pass
    assert path.read_text() == "mine"
