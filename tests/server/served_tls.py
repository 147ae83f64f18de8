"""Self-signed certificates, and a server in its own process that uses one."""

from __future__ import annotations

import datetime as dt
import http.client
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from served_streams import Served


def write_certificate(folder, name="localhost"):
    """Write a new certificate for this machine and return its two files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    files = folder / "server.pem", folder / "server.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def replace_certificate(files, folder, name):
    """Replace the files of a certificate as renewal tools do."""
    for path, new in zip(files, write_certificate(folder, name), strict=True):
        new.replace(path)


class TlsServed(Served):
    """`fourfold serve` over TLS."""

    def __init__(self, folder, *options, environment=None):
        self.files = write_certificate(folder / "tls")
        certificate, key = map(str, self.files)
        super().__init__(
            folder / "store",
            options=("--tls-cert", certificate, "--tls-key", key, *options),
            environment=environment,
        )

    def connect(self):
        context = ssl.create_default_context(cafile=str(self.files[0]))
        return http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            response.text = response.read()
            return response
        finally:
            connection.close()

    def name(self):
        """Return the name in the certificate that a new connection receives."""
        pem = ssl.get_server_certificate(("localhost", self.port))
        subject = x509.load_pem_x509_certificate(pem.encode()).subject
        return subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
