"""One file over HTTP into a partial file that can be resumed: tomorrow, from another mirror, after any accident.

A server may drop the connection, announce a wrong length, answer 502, ignore the wish to resume, or hold a newer file
than yesterday. Whatever it does, bytes of two different files are never joined, and a short file is never called whole.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pdocrl.errors import PdocrlError
from pdocrl.files import write_json

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if known

_BLOCK = 1 << 16
_WORTH_A_NEW_TRY = 1 << 20  # a try that adds this much was not in vain: the count of tries begins again
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # answers that may be different in a moment
_LONGEST_PAUSE = 60.0


class MirrorError(Exception):
    """This mirror does not deliver. `passing`: it may, if asked again."""

    def __init__(self, reason: str, passing: bool = False, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.passing, self.pause = passing, pause


def download(
    url: str,
    partial: Path,
    tries: int = 4,
    pause: float = 1.0,
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> str | None:
    """Fill `partial` with what `url` holds, going on from what it has. Returns the sha256 the host announces, if any.

    Args:
        url: http or https.
        partial: the file to fill; what is needed to resume stands beside it in `<partial>.json`.
        tries: failures in a row, without a megabyte gained, before `MirrorError`.
        pause: seconds before the second try; doubled each time.
        timeout: seconds without a byte that count as a failure.
        progress: told how far it is.
    """
    failures, most = 0, _size(partial)
    while True:
        try:
            return _attempt(url, partial, timeout, progress)
        except MirrorError as error:
            failures += 1
            if (now := _size(partial)) >= most + _WORTH_A_NEW_TRY:
                failures, most = 1, now
            if not error.passing:
                raise
            if failures >= tries:
                raise MirrorError(f"{error}, {failures} times" if failures > 1 else str(error)) from error
            time.sleep(min(max(pause * 2 ** (failures - 1), error.pause), _LONGEST_PAUSE))


def discard(partial: Path) -> None:
    """Remove a partial file and what is known about it."""
    partial.unlink(missing_ok=True)
    _sidecar(partial).unlink(missing_ok=True)


def host_of(url: str) -> str:
    """For messages: who was asked."""
    return urllib.parse.urlsplit(url).netloc


def _attempt(url: str, partial: Path, timeout: float, progress: Progress | None) -> str | None:
    sidecar = _read_sidecar(partial)
    # What has no version can only be resumed from the very place it came from.
    have = _size(partial) if sidecar and (sidecar["version"] or sidecar["url"] == url) else 0
    headers = {"User-Agent": "pdocrl", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if sidecar and sidecar["version"]:
            headers["If-Range"] = sidecar["version"]
    redirects = _Redirects()
    try:
        request = urllib.request.Request(url, headers=headers)
        response = urllib.request.build_opener(redirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and have:  # nothing beyond what we have: all of it, or another file
                if error.headers.get("Content-Range") == f"bytes */{have}":
                    return redirects.sha256
                raise _another_file(partial) from None
            wait = error.headers.get("Retry-After", "")
            pause = float(wait) if wait.isdigit() else 0.0
            raise MirrorError(f"HTTP {error.code} {error.reason}", error.code in _PASSING, pause) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise MirrorError(_reason(error), passing=not isinstance(error, ValueError)) from None
    with response:
        start, total = _extent(response, have)
        if start and sidecar and sidecar["total"] not in (None, total):
            raise _another_file(partial)
        write_json(_sidecar(partial), {"url": url, "version": _version(response), "total": total})
        _receive(response, partial, start, total, progress)
    return redirects.sha256


def _receive(response: Any, partial: Path, start: int, total: int | None, progress: Progress | None) -> None:
    """Append the body at `start`; short of `total` is a failure."""
    done = start
    with _writing(partial), partial.open("r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        while True:
            try:
                block = response.read(_BLOCK)
            except (http.client.HTTPException, OSError) as error:
                file.flush()
                raise MirrorError(f"broke off after {done:,} bytes ({_reason(error)})", passing=True) from None
            if not block:
                break
            file.write(block)
            done += len(block)
            if progress is not None:
                progress(done, total)
    if total is not None and done != total:
        raise MirrorError(f"broke off after {done:,} of {total:,} bytes", passing=True)


def _extent(response: Any, asked: int) -> tuple[int, int | None]:
    """Where the body belongs and how long the whole file is: a server may ignore the range, and send all of it."""
    length = response.headers.get("Content-Length", "")
    if response.status != 206:
        return 0, int(length) if length.isdigit() else None
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != asked:
        raise MirrorError("answers with another range than asked for")
    return asked, int(found[2]) if found[2] != "*" else None


def _another_file(partial: Path) -> MirrorError:
    discard(partial)
    return MirrorError("the file there is not the one that was begun", passing=True)


def _version(response: Any) -> str | None:
    """What tells this version of the file from others; weak tags do not promise equal bytes."""
    tag: str | None = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and reads off the digest that Hugging Face sends with the first one."""

    sha256: str | None = None

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        tag = headers.get("X-Linked-Etag", "").strip('"')
        self.sha256 = tag if re.fullmatch("[0-9a-f]{64}", tag) else self.sha256
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextlib.contextmanager
def _writing(partial: Path) -> Any:
    try:
        yield
    except OSError as error:
        raise PdocrlError(
            f"cannot write {partial}: {error.strerror}. Free some space, or set PDOCRL_DATA to another folder."
        ) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sidecar(partial: Path) -> Path:
    return partial.with_name(partial.name + ".json")


def _read_sidecar(partial: Path) -> dict[str, Any] | None:
    try:
        sidecar = json.loads(_sidecar(partial).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return sidecar if isinstance(sidecar, dict) and {"url", "version", "total"} <= sidecar.keys() else None


def _reason(error: BaseException) -> str:
    cause = getattr(error, "reason", None)
    text = str(cause if cause is not None else error) or type(error).__name__
    return " ".join(text.split())
