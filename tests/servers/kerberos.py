"""A key distribution center on this machine: MIT Kerberos, as Debian packs it (krb5-kdc).

Realm, database and keytabs are in a folder of its own. Skips the test where it is not installed.
`KerberosCluster` is a Kafka broker whose second listener lets in nobody without a ticket.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rangeland.testing.context_managers import Closing
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S, Process
from tests.build_cache import kept, pip_install

REALM = "RANGELAND.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
GSSAPI = "gssapi==1.12.0"
_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class KeyCenter(Closing):
    """Started by the constructor. ``krb5_conf`` is for clients, Java's and others."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
        if missing:
            pytest.skip(f"this machine has no {', '.join(missing)} (packages krb5-kdc, krb5-user)")
        folder.mkdir()
        self.folder = folder
        (self.port,) = free_ports(1)
        self.krb5_conf = folder / "krb5.conf"
        self.krb5_conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
            " dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f" default_ccache_name = FILE:{folder}/no-cache\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_ports = {self.port}\n kdc_tcp_ports = {self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
            f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n }}\n"
            f"[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process: Process | None = None
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }

    def start(self) -> None:
        program = shutil.which("krb5kdc", path=_PATH)
        assert program is not None
        self._process = Process(
            "krb5kdc",
            [program, "-n", "-P", str(self.folder / "pid")],
            log=self.folder / "krb5kdc.log",
            environment=self.environment,
        )
        self._process.wait_for_port(self.port)

    def keytab(self, principal: str) -> Path:
        """Makes the principal, and a file with its key."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def log_in(self, principal: str, keytab: Path) -> Path:
        """A ticket cache of the principal."""
        cache = self.folder / "cache"
        self._run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)
        return cache

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def gssapi_library() -> Path:
    """A folder with the package `gssapi`, which is built once."""
    if shutil.which("krb5-config") is None:
        pytest.skip("gssapi is built with krb5-config (package libkrb5-dev)")
    made_of = f"{sys.version_info[:2]} {GSSAPI} with what it needs"
    return kept(
        "packages",
        made_of,
        lambda target: pip_install(Path(sys.executable), ["--target", str(target), GSSAPI]),
    )


class KerberosCluster(KafkaCluster):
    """One broker. Its plain listener is for the tests' own writing, ``guarded`` the other."""

    def __init__(self, center: KeyCenter, service: str) -> None:
        self._center = center
        self._service = service
        self._keytab = center.keytab(f"{service}/127.0.0.1")
        self.guarded = ""
        super().__init__()

    def _write_config(self, node: int, settings: Mapping[str, object]) -> None:
        self.guarded = f"127.0.0.1:{free_ports(1)[0]}"
        principal = f"{self._service}/127.0.0.1@{REALM}"
        extra: dict[str, object] = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "GUARDED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": self._service,
            "listener.name.guarded.gssapi.sasl.jaas.config": f"{_MODULE} required useKeyTab=true "
            f'storeKey=true keyTab="{self._keytab}" principal="{principal}";',
        }
        for name in ("listeners", "advertised.listeners"):
            extra[name] = f"{settings[name]},GUARDED://{self.guarded}"
        super()._write_config(node, {**settings, **extra})

    def _java(self, name: str, heap_mb: int, *arguments: str) -> Process:
        option = f"-Djava.security.krb5.conf={self._center.krb5_conf}"
        return super()._java(name, heap_mb, option, *arguments)
