"""A SAS token of Azure reaches its store as a query, and no error repeats it. The store is a real
HTTP server, since only Arrow's client makes the URLs."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from rangeland.delta.ledger.ledger_files import LedgerFiles
from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.quarantine.quarantine_table import _read
from rangeland.delta.stores.azure_access import AzureSettings
from rangeland.delta.stores.hadoop_settings import HadoopSettings
from rangeland.delta.stores.store_access import StoreSettings, store_settings
from rangeland.delta.stores.store_errors import (
    as_own_errors,
    masked_error,
    store_error,
)
from rangeland.delta.stores.store_probe import foreign_entries, try_store
from rangeland.delta.table_metadata import TableLayout
from rangeland.delta.transaction_log.table_commit import gone_files
from rangeland.errors import RangelandError, StorageFailed, TableRefused, error_json
from rangeland.model import DataFile

SECRET = "TOPSECRET"
TOKEN = f"sv=2024-01-01&ss=b&sig={SECRET}%3D"
TABLE = "abfs://data@acct.dfs.core.windows.net/lake/orders"
FILE = DataFile("a.parquet", 1, 1, "{}", 1)


class Azure(ThreadingHTTPServer):
    """Refuses every request, and keeps the paths that were asked for."""

    daemon_threads = True
    content_type = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.asked: list[str] = []

    def settings(self, token: str) -> StoreSettings:
        conf = {
            "fs.azure.account.auth.type": "SAS",
            "fs.azure.sas.fixed.token": token,
            "fs.azure.abfs.endpoint": f"127.0.0.1:{self.server_port}",
            "fs.azure.always.use.https": "false",
        }
        hadoop = HadoopSettings(conf.get, conf.get, lambda _: {})
        return store_settings(TABLE, hadoop, NotImplemented)


class _Refusal(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Azure

    def do_HEAD(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.path)
        self.send_response(403)
        self.send_header("x-ms-error-code", "AuthorizationFailure")
        if self.server.content_type:
            self.send_header("Content-Type", self.server.content_type)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def azure() -> Iterator[Azure]:
    with Azure() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def write(table: StoreSettings) -> None:
    schema = pa.schema([("offset", pa.int64())])
    writer = FileWriter(FileWriterSettings(table, TableLayout(schema)))
    writer.write(pa.record_batch({"offset": [1]}, schema=schema))
    writer.close()


USES: list[Callable[[StoreSettings], object]] = [
    try_store,
    foreign_entries,
    lambda table: gone_files(table, [FILE]),
    write,
    lambda table: LedgerFiles(TABLE, table).remove(FILE),
    lambda table: LedgerFiles(TABLE, table).events_in(["a.parquet"], ["plan"]),
    lambda table: _read(*table.open(), None),
]


@pytest.mark.parametrize("mark", ["", "?"])
def test_a_token_reaches_the_store_as_a_query(azure: Azure, mark: str) -> None:
    with pytest.raises(TableRefused, match="AuthorizationFailure"):
        gone_files(azure.settings(mark + TOKEN), [FILE])
    url = urlsplit(azure.asked[0])
    assert url.path.strip("/") == "acct/data"
    assert parse_qs(url.query)["sig"] == [f"{SECRET}="]


@pytest.mark.parametrize("use", USES)
def test_no_error_repeats_a_token(azure: Azure, use: Callable[[StoreSettings], object]) -> None:
    with pytest.raises(RangelandError) as caught:
        use(azure.settings(TOKEN))
    assert isinstance(caught.value, TableRefused | StorageFailed)
    shown = json.dumps(error_json(caught.value)) + "".join(traceback.format_exception(caught.value))
    assert SECRET in "".join(azure.asked)
    assert "127.0.0.1" in shown
    assert SECRET not in shown


@pytest.mark.parametrize("use", [foreign_entries, USES[2]])
def test_an_answer_that_the_client_cannot_parse_is_a_failure_of_the_store(
    azure: Azure, use: Callable[[StoreSettings], object]
) -> None:
    """Arrow then raises ArrowException, which is not an OSError."""
    azure.content_type = "application/json"
    with pytest.raises(StorageFailed, match="parse_error") as caught:
        use(azure.settings(TOKEN))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("'http://a/acct/data?sig=TOP%3D&sv=1' failed", "'http://a/acct/data' failed"),
        ("blobs: x: http://a/data?sv=1&sig=TOP Azure Error", "blobs: x: http://a/data Azure"),
        (
            "'http://a/acct/sv=1&sig=TOP%3D/data?comp=list' failed",
            "'http://a/acct/sv=1&sig=***' failed",
        ),
        ("'https://a/data?sv=1 sig=TOP' failed: bad URL", "'https://a/data sig=***' failed"),
        ("is there a file a?b.parquet", "is there a file a?b.parquet"),
    ],
)
def test_queries_and_signatures_are_cut_from_what_a_store_says(said: str, shown: str) -> None:
    error = store_error(OSError(said), "data/t")
    assert shown in error.why
    assert "TOP" not in str(error)
    assert shown in str(masked_error(OSError(said)))


def test_an_error_without_secrets_keeps_its_kind() -> None:
    plain = FileNotFoundError(2, "no such file", "a")
    assert masked_error(plain) is plain
    masked = masked_error(FileNotFoundError(2, "nothing at http://a/b?sig=TOP"))
    assert isinstance(masked, FileNotFoundError)
    assert (masked.errno, masked.strerror) == (2, "nothing at http://a/b")
    assert isinstance(masked_error(pa.ArrowInvalid("http://a?sig=TOP")), pa.ArrowInvalid)


def test_an_error_about_data_is_not_the_stores() -> None:
    with pytest.raises(pa.ArrowInvalid), as_own_errors("data/t"):
        raise pa.ArrowInvalid("a column is too long")


def test_a_key_that_is_no_key_is_refused(azure: Azure) -> None:
    at = f"127.0.0.1:{azure.server_port}"
    service = AzureSettings("acct", "http", at, at, account_key="no key!")
    with pytest.raises(TableRefused, match="Base64"):
        gone_files(StoreSettings(TABLE, service), [FILE])


def test_a_store_that_cannot_be_opened_is_named_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pa.ArrowException("Unknown error: 'http://a/data?sig=TOPSECRET': no")

    monkeypatch.setattr(pafs, "AzureFileSystem", fail)
    with pytest.raises(StorageFailed, match="http://a/data") as caught:
        StoreSettings(TABLE, AzureSettings("acct")).open()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
