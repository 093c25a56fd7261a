#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up test cases after `bazel test --build_event_json_file=FILE`.

Prints one closing line, 'N passed, N failed' (', N skipped' if any): doctest's
cases where a log has doctest's totals, and one for the whole target elsewhere.
Exits 1 when something failed, was not built, or nothing passed.
"""
import argparse
import json
import re
import sys
from urllib.parse import unquote, urlparse

TOTALS = re.compile(
    r"^\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed \|(?:\s*(\d+) skipped)?")
BANNER = re.compile(r"^\[doctest\] doctest version is")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def read_log(uri):
    """(is it a doctest log?, [passed, failed, skipped] or None if it has no totals)"""
    is_doctest, totals = False, None
    with open(unquote(urlparse(uri).path), errors="replace") as log:
        for line in log:
            line = ANSI.sub("", line)
            is_doctest = is_doctest or bool(BANNER.match(line))
            match = TOTALS.match(line)
            if match:
                totals = [a + int(b or 0) for a, b in zip(totals or [0, 0, 0], match.groups())]
    return is_doctest, totals


def read_events(lines):
    """(results by label, run and shard; labels that were not built; Bazel's exit code)"""
    results, broken, exit_code = {}, set(), None
    for line in lines:
        event = json.loads(line)
        kind = event["id"]
        if "testResult" in kind:
            key = kind["testResult"]
            # A later attempt replaces an earlier one.
            results[key["label"], key.get("run", 1), key.get("shard", 1)] = event["testResult"]
        elif "targetCompleted" in kind and not event.get("completed", {}).get("success"):
            if event.get("aborted", {}).get("reason") != "SKIPPED":  # needs CUDA, say
                broken.add(kind["targetCompleted"]["label"])
        elif "buildFinished" in kind:
            exit_code = event["finished"]["exitCode"].get("code", 0)
    return results, broken, exit_code


def count(result):
    """[passed, failed, skipped] of one test target"""
    good = result["status"] in ("PASSED", "FLAKY")
    logs = [o["uri"] for o in result.get("testActionOutput", []) if o["name"] == "test.log"]
    is_doctest, totals = read_log(logs[0]) if logs and logs[0].startswith("file:") else (False, None)
    if totals is None:  # a doctest program without totals left before its end, whatever its status
        return [1, 0, 0] if good and not is_doctest else [0, 1, 0]
    if not good and totals[1] == 0:
        totals[1] = 1  # crashed or timed out outside its cases
    return totals


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", metavar="FILE", help="what --build_event_json_file wrote")
    with open(parser.parse_args().events) as events:
        results, broken, exit_code = read_events(events)

    sums = [0, 0, 0]
    for (label, _, _), result in sorted(results.items()):
        totals = count(result)
        if totals[1]:
            print("FAILED %s" % label)
        sums = [a + b for a, b in zip(sums, totals)]
    for label in sorted(broken):
        print("NOT BUILT %s" % label)
        sums[1] += 1
    passed, failed, skipped = sums
    if exit_code != 0 and not failed:
        failed = 1  # the run broke before any target was reached, or was interrupted

    print("%d passed, %d failed" % (passed, failed) + (", %d skipped" % skipped if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
