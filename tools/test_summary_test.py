#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of test_summary.py, on event files and logs as Bazel and doctest write them."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_summary.py")
BANNER = '[doctest] doctest version is "2.4.9"\n[doctest] run with "--help" for options\n'
LINE = "[doctest] test cases: %d | %d passed | %d failed | %d skipped\n"


class TestSummary(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.events = []

    def add_test(self, label, status, log):
        path = os.path.join(self.folder.name, "log %d" % len(self.events))
        with open(path, "w") as out:
            out.write(log)
        self.events.append({
            "id": {"testResult": {"label": label, "run": 1}},
            "testResult": {
                "status": status,
                "testActionOutput": [{"name": "test.log", "uri": "file://" + path.replace(" ", "%20")}],
            },
        })

    def add_unbuilt(self, label, aborted=None):
        event = {"id": {"targetCompleted": {"label": label}}, "completed": {}}
        if aborted:
            event = {"id": event["id"], "aborted": {"reason": aborted}}
        self.events.append(event)

    def run_summary(self, exit_code=0):
        code = {"code": exit_code} if exit_code else {}
        self.events.append({"id": {"buildFinished": {}}, "finished": {"exitCode": code}})
        path = os.path.join(self.folder.name, "events.json")
        with open(path, "w") as out:
            out.writelines(json.dumps(event) + "\n" for event in self.events)
        run = subprocess.run([sys.executable, PROGRAM, path], stdout=subprocess.PIPE, text=True)
        return run.returncode, run.stdout.splitlines()

    def test_adds_up_doctest_cases(self):
        self.add_test("//a", "PASSED", BANNER + LINE % (3, 3, 0, 0))
        self.add_test("//b", "PASSED", BANNER + "\x1b[0;36m" + LINE % (2, 2, 0, 1))
        self.assertEqual(self.run_summary(), (0, ["5 passed, 0 failed, 1 skipped"]))

    def test_totals_without_the_skipped(self):
        self.add_test("//a", "PASSED", BANNER + "[doctest] test cases: 4 | 4 passed | 0 failed |\n")
        self.assertEqual(self.run_summary(), (0, ["4 passed, 0 failed"]))

    def test_counts_other_programs_as_one(self):
        self.add_test("//a", "PASSED", "anything\n")
        self.assertEqual(self.run_summary(), (0, ["1 passed, 0 failed"]))

    def test_failing_cases(self):
        self.add_test("//a", "FAILED", BANNER + LINE % (5, 3, 2, 0))
        self.assertEqual(self.run_summary(3), (1, ["FAILED //a", "3 passed, 2 failed"]))

    def test_failure_outside_the_cases(self):
        self.add_test("//a", "TIMEOUT", BANNER + LINE % (5, 5, 0, 0))
        self.add_test("//b", "FAILED", "crash\n")
        self.assertEqual(self.run_summary(3), (1, ["FAILED //a", "FAILED //b", "5 passed, 2 failed"]))

    def test_doctest_that_left_early_with_success(self):
        self.add_test("//a", "PASSED", BANNER)
        self.assertEqual(self.run_summary(), (1, ["FAILED //a", "0 passed, 1 failed"]))

    def test_later_attempt_replaces_the_earlier(self):
        self.add_test("//a", "FAILED", BANNER + LINE % (1, 0, 1, 0))
        self.add_test("//a", "PASSED", BANNER + LINE % (1, 1, 0, 0))
        self.assertEqual(self.run_summary(), (0, ["1 passed, 0 failed"]))

    def test_not_built(self):
        self.add_test("//a", "PASSED", "")
        self.add_unbuilt("//b")
        self.assertEqual(self.run_summary(1), (1, ["NOT BUILT //b", "1 passed, 1 failed"]))

    def test_skipped_targets_do_not_count(self):
        self.add_test("//a", "PASSED", "")
        self.add_unbuilt("//cuda", "SKIPPED")
        self.assertEqual(self.run_summary(), (0, ["1 passed, 0 failed"]))

    def test_broken_run(self):
        self.add_test("//a", "PASSED", "")
        self.assertEqual(self.run_summary(8), (1, ["1 passed, 1 failed"]))

    def test_nothing_ran(self):
        self.assertEqual(self.run_summary(), (1, ["0 passed, 0 failed"]))

    def test_no_end_of_the_build(self):
        self.add_test("//a", "PASSED", "")
        self.events.append({"id": {"progress": {}}})
        path = os.path.join(self.folder.name, "events.json")
        with open(path, "w") as out:
            out.writelines(json.dumps(event) + "\n" for event in self.events)
        run = subprocess.run([sys.executable, PROGRAM, path], stdout=subprocess.PIPE, text=True)
        self.assertEqual((run.returncode, run.stdout), (1, "1 passed, 1 failed\n"))


if __name__ == "__main__":
    unittest.main()
