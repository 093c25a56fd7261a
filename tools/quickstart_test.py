#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of quickstart, with programs in the place of setup, bazel and train that print what a case
says."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quickstart")
STEPS = 100
REFUSAL = "train: does not fit: the GPU budget is short by %d bytes; keep_all needs more\n"
PEAK = """\

device bytes                   at peak          measured           maximum          measured
  parameters                   1000000           1000000           1000000           1000000
  peak                        {0:>8}          {1:>8}          {0:>8}          {1:>8}

host bytes                     at peak          measured           maximum          measured
  peak                        26000000          26000000          26000000          26000000
"""
TRAIN = """\
#!/bin/bash
name=planned
[[ " $* " != *" keep_all "* ]] || name=keep_all
[[ " $* " != *" --plain "* ]] || name=plain
cat "$FAKE/$name.err" >&2
cat "$FAKE/$name.out"
while [ $# -gt 0 ]; do
  [ "$1" != --log ] || cp "$FAKE/$name.log" "$2"
  shift
done
exit "$(cat "$FAKE/$name.status")"
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.program("path/bazel", "#!/bin/sh\n")
        self.program("tools/setup", "#!/bin/sh\n")
        self.program("bazel-bin/examples/train", TRAIN)
        os.makedirs(os.path.join(self.root, "tmp"))
        shutil.copy(PROGRAM, os.path.join(self.root, "tools/quickstart"))
        self.fake("keep_all", err=REFUSAL % 30652672, status=2)
        self.fake("planned", out=self.bits() + PEAK.format(23033600, 23033600), log=self.log())
        self.fake("plain", out=self.bits(), log=self.log())

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)
        return path

    def program(self, name, text):
        os.chmod(self.write(name, text), 0o755)

    def fake(self, name, out="", err="", log="", status=0):
        for what, text in (("out", out), ("err", err), ("log", log), ("status", str(status))):
            self.write("fake/%s.%s" % (name, what), text)

    @staticmethod
    def bits(parameters="0123456789abcdef"):
        return "bits        losses %s norms %s parameters %s\n" % ("1" * 16, "2" * 16, parameters)

    @staticmethod
    def log(steps=STEPS, first=5.4189, last=3.1019, bits="40ad6789"):
        losses = [first] + [4.5] * (steps - 2) + [last]
        return "".join(
            '{"step":%d,"loss":%s,"loss_bits":"%s","grad_norm":1,"grad_norm_bits":"3f800000"}\n'
            % (i + 1, loss, bits) for i, loss in enumerate(losses))

    def run_it(self):
        env = dict(os.environ, FAKE=os.path.join(self.root, "fake"), TMPDIR=os.path.join(self.root, "tmp"),
                   PATH=os.path.join(self.root, "path") + ":" + os.environ["PATH"])
        run = subprocess.run([os.path.join(self.root, "tools/quickstart")], env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(os.listdir(os.path.join(self.root, "tmp")), [])
        return run

    def refused(self, words):
        run = self.run_it()
        self.assertEqual(run.returncode, 3, run.stdout + run.stderr)
        self.assertRegex(run.stderr, "(?m)^quickstart: .*" + re.escape(words))
        self.assertNotIn("Same bits", run.stdout)

    def test_all_as_it_should_be(self):
        run = self.run_it()
        self.assertEqual((run.returncode, run.stderr), (0, REFUSAL % 30652672), run.stdout)
        self.assertEqual(run.stdout.splitlines()[-1], "Same bits: 100 losses, 100 gradient norms and all "
                         "parameters of the planned run equal the plain run's.")

    def test_keep_all_must_be_refused(self):
        self.fake("keep_all")
        self.refused("keep_all ended with 0, not 2")

    def test_budget_must_be_under_half_of_what_keep_all_needs(self):
        self.fake("keep_all", err=REFUSAL % 23068672, status=2)
        self.refused("keep_all is short by 23068672 bytes")
        self.fake("keep_all", err="train: wrong flag\n", status=2)
        self.refused("keep_all is short by ? bytes")

    def test_a_run_that_fails_after_it_printed_all(self):
        self.fake("planned", out=self.bits() + PEAK.format(23033600, 23033600), log=self.log(), status=3)
        self.refused("the planned run ended with 3")

    def test_the_plain_run_fails(self):
        self.fake("plain", out=self.bits(), log=self.log(), status=130)
        self.refused("the plain run ended with 130")

    def test_bits_that_neither_run_says(self):
        self.fake("planned", out=PEAK.format(23033600, 23033600), log=self.log())
        self.fake("plain", log=self.log())
        self.refused("the planned run doesn't say the bits")

    def test_bits_of_a_log_that_neither_run_writes_as_expected(self):
        self.fake("planned", out=self.bits() + PEAK.format(23033600, 23033600), log=self.log(bits="?"))
        self.fake("plain", out=self.bits(), log=self.log(bits="?"))
        self.refused("the planned run doesn't say the bits")

    def test_a_step_is_missing(self):
        self.fake("plain", out=self.bits(), log=self.log(steps=STEPS - 1))
        self.refused("the plain run doesn't say the bits")

    def test_other_parameters(self):
        self.fake("plain", out=self.bits("f" * 16), log=self.log())
        self.refused("DIFFER")

    def test_other_losses(self):
        self.fake("plain", out=self.bits(), log=self.log(bits="40ad6788"))
        self.refused("DIFFER")

    def test_peaks(self):
        for predicted, measured, words in (
                (23033600, 23033601, "predicted 23033600, measured 23033601"),
                ("none", "none", "predicted ?, measured ?"),
                (23068673, 23068673, "23068673 bytes, above 22 MiB")):
            self.fake("planned", out=self.bits() + PEAK.format(predicted, measured), log=self.log())
            self.refused(words)

    def test_a_loss_that_does_not_fall(self):
        for first, last, words in ((5, 3.1, "the first step's loss is 5, not > 5"),
                                   (5.4, 3.5, "the last step's loss is 3.5, not < 3.5"),
                                   (5.4, "null", "the last step's loss is missing")):
            self.fake("planned", out=self.bits() + PEAK.format(23033600, 23033600),
                      log=self.log(first=first, last=last))
            self.refused(words)


if __name__ == "__main__":
    unittest.main()
