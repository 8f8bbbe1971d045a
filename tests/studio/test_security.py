"""Nobody but the learner's own browser is let in, and what is let in cannot do harm."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from studio.live import Live, running

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("studio")
    static = folder / "static"
    (static / "assets").mkdir(parents=True)
    page = '<!doctype html><meta name="csp-nonce" content="__CSP_NONCE__"><title>Page</title>'
    (static / "index.html").write_text(page, encoding="utf-8")
    (static / "icon.svg").write_text("<svg/>", encoding="utf-8")
    (static / "assets" / "app-1234.js").write_text("let x", encoding="utf-8")
    (folder / "secret.txt").write_text("not for you", encoding="utf-8")
    with running(folder, static=static) as live:
        yield live


def test_the_address_sets_a_cookie_that_no_script_reads(studio: Live) -> None:
    status, headers, _ = studio.request("GET", f"/?token={studio.state.token}", cookie=False)
    assert (status, headers["location"]) == (303, "/")
    flags = {word.strip().lower() for word in headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert headers["set-cookie"].startswith(studio.cookie)


@pytest.mark.parametrize("path", ["/", "/api/state", "/assets/app-1234.js", "/lesson/05"])
def test_without_the_token_nothing_is_shown(studio: Live, path: str) -> None:
    status, _, body = studio.request("GET", path, cookie=False)
    assert status == 401
    assert len(body.decode().strip().splitlines()) == 1


@pytest.mark.parametrize("token", ["", "x", "a" * 32, "%00", "字"])
def test_a_wrong_token_is_no_token(studio: Live, token: str) -> None:
    status, headers, _ = studio.request(
        "GET", f"/?token={token.encode().hex() if not token.isascii() else token}", cookie=False
    )
    assert status == 401 and "set-cookie" not in headers
    wrong = {"Cookie": f"{studio.state.cookie}={token}".encode().decode("latin-1")}
    assert studio.request("GET", "/api/state", headers=wrong, cookie=False)[0] == 401


def test_a_wrong_token_does_not_help_who_has_a_cookie(studio: Live) -> None:
    assert studio.request("GET", "/?token=wrong")[0] == 401


def test_a_link_on_another_page_finds_its_way(studio: Live) -> None:
    """The browser holds a strict cookie back then; the page asks for itself again."""
    came = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    status, _, body = studio.request("GET", "/", headers=came, cookie=False)
    assert status == 401 and b"refresh" in body
    again = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
    assert b"refresh" not in studio.request("GET", "/", headers=again, cookie=False)[2]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.nip.io", ""]
)
def test_a_foreign_host_is_refused(studio: Live, host: str) -> None:
    """A name that an attacker makes point to this machine is still the attacker's."""
    status, headers, _ = studio.request("GET", "/api/state", headers={"Host": host})
    assert status in (400, 421)
    assert "access-control-allow-origin" not in headers


def test_every_name_of_this_machine_is_known(studio: Live) -> None:
    for name in ("127.0.0.1", "localhost", "[::1]"):
        host = {"Host": f"{name}:{studio.state.port}"}
        assert studio.request("GET", "/api/state", headers=host)[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://"]
)
def test_another_origin_is_refused(studio: Live, origin: str) -> None:
    for method, path in (("GET", "/api/state"), ("POST", "/api/progress")):
        body = b"{}" if method == "POST" else None
        headers = {"Origin": origin, **JSON}
        assert studio.request(method, path, body, headers)[0] == 403


def test_the_own_origin_is_answered(studio: Live) -> None:
    assert studio.request("GET", "/api/state", headers={"Origin": studio.origin})[0] == 200


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_only_json_is_taken(studio: Live, kind: str | None) -> None:
    """What a foreign form could send is not."""
    headers = {} if kind is None else {"Content-Type": kind}
    assert studio.request("POST", "/api/progress", b"{}", headers)[0] == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_not_known(studio: Live, method: str) -> None:
    status, headers, _ = studio.request(method, "/api/state")
    assert status in (400, 405)
    assert "access-control-allow-methods" not in headers


def test_what_is_not_json_is_told_so(studio: Live) -> None:
    deep = b'{"lesson":"05","cell":"x","kind":"quiz","state":' + b"[" * 700 + b"]" * 700 + b"}"
    for body in (b"", b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000, deep):
        status, _, answer = studio.request("POST", "/api/progress", body, JSON)
        assert status == 422, body
        assert json.loads(answer)["error"]["kind"] == "usage"


def test_a_body_that_is_too_large_is_not_read(studio: Live) -> None:
    large = b'{"x": "' + b"a" * (1 << 20) + b'"}'
    assert studio.request("POST", "/api/progress", large, JSON)[0] == 413


def test_a_body_without_a_length_is_counted(studio: Live) -> None:
    with socket.create_connection(("127.0.0.1", studio.state.port), timeout=30) as raw:
        head = (
            f"POST /api/progress HTTP/1.1\r\nHost: 127.0.0.1:{studio.state.port}\r\n"
            f"Cookie: {studio.cookie}\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        raw.sendall(head.encode())
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        answer = b""
        try:
            for _ in range(20):
                raw.sendall(chunk)
            raw.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        answer = raw.recv(4096)
    assert b" 413 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../secret.txt",
        "/assets/../../secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/..%5c..%5csecret.txt",
        "/assets//etc/passwd",
        "/assets/%00",
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/secret.txt",
        "/api/lessons/..%2f..%2fsecret",
        "/api/runs/..%2f..%2fetc/metrics",
        "/api/runs/%2fetc/metrics",
        "/api/runs/../metrics",
        "/api/ladders/..%2f..",
    ],
)
def test_no_path_leads_out(studio: Live, path: str) -> None:
    status, _, body = studio.request("GET", path)
    assert b"not for you" not in body and b"root:" not in body
    assert status in (200, 400, 404, 422)
    if status == 200:
        assert b"<title>Page</title>" in body


@pytest.mark.parametrize("path", ["/", "/lesson/06.5", "/explorer", "/api/state", "/api/nothing"])
def test_every_answer_keeps_the_page_in(studio: Live, path: str) -> None:
    _, headers, body = studio.request("GET", path)
    rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'self'" and rules["script-src"] == "'self'"
    assert rules["object-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert "evil" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    if b"csp-nonce" in body:
        nonce = rules["style-src"].split("nonce-")[1].rstrip("'")
        assert f'content="{nonce}"'.encode() in body


def test_each_page_has_a_nonce_of_its_own(studio: Live) -> None:
    first, second = (studio.request("GET", "/")[2] for _ in range(2))
    assert first != second


def test_assets_may_be_kept_and_others_not(studio: Live) -> None:
    status, headers, _ = studio.request("GET", "/assets/app-1234.js")
    assert status == 200 and "immutable" in headers["cache-control"]
    assert studio.request("GET", "/assets/none.js")[0] == 404
    assert studio.request("GET", "/icon.svg")[0] == 200


def test_a_socket_needs_origin_host_and_token(studio: Live) -> None:
    address = f"ws://127.0.0.1:{studio.state.port}/api/socket"
    cookie = {"Cookie": studio.cookie}
    refused: list[tuple[str | None, dict[str, str]]] = [
        (None, cookie),
        ("http://evil.example", cookie),
        ("null", cookie),
        (studio.origin, {}),
        (studio.origin, {"Cookie": f"{studio.state.cookie}=wrong"}),
    ]
    for origin, headers in refused:
        with (
            pytest.raises(InvalidStatus) as caught,
            connect(address, origin=origin, additional_headers=headers),
        ):
            pass
        assert caught.value.response.status_code == 403
    with studio.tab() as tab:
        tab.send("nonsense", ask="1")
        told = tab.until(lambda m: m["type"] == "error")
        assert told["ask"] == "1" and "nonsense" in told["message"]


def test_a_mistake_is_said_in_the_readers_language(studio: Live) -> None:
    for language, word in (("zh", "没有"), ("en", "there is no")):
        status, answer = studio.post("/api/jobs", {"kind": "x"}, language)
        assert status == 422 and word in answer["error"]["message"]


def test_what_is_ours_to_mend_is_an_answer_too(
    studio: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("partwise.course.catalogue.lessons", broken)
    status, headers, body = studio.request("GET", "/api/state")
    assert status == 500 and json.loads(body)["error"]["kind"] == "fault"
    assert "default-src 'self'" in headers["content-security-policy"]


def test_the_page_that_is_not_built_says_so(tmp_path: Path) -> None:
    with running(tmp_path, static=tmp_path / "none") as live:
        status, _, body = live.request("GET", "/")
    assert status == 200 and b"make studio" in body
