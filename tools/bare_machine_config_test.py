#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of what bare_machine_test hands to debootstrap and into the machine, with programs in the
place of all that makes one: nothing is mounted, fetched or entered."""
import os
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bare_machine_test")
FAKES = {
    "apt-config": 'cat "$FAKE/apt.conf"',
    "apt-get": 'echo "http://mirror/debian bookworm main"',
    "chroot": 'case $2 in */env) cp -r "$1" "$FAKE/machine" ;; esac',
    "debootstrap": 'printf "%s\\n" "$@" >"$FAKE/debootstrap"; cat "$WGETRC" >"$FAKE/wgetrc" 2>/dev/null;'
                   ' for at; do [ ! -d "$at" ] || break; done; mkdir -p "$at/etc/apt/apt.conf.d" "$at/srv" "$at/proc"',
    "git": 'for at; do :; done; mkdir "$at"',
    "id": "echo 0",
    "mktemp": 'mkdir "$FAKE/work" && echo "$FAKE/work"',
    "mount": "exit 0",
    "unshare": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
}


class BareMachineConfig(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.mkdir(os.path.join(self.root, "tools"))
        shutil.copy(PROGRAM, os.path.join(self.root, "tools", "bare_machine_test"))
        for name, text in FAKES.items():
            self.write("path/" + name, "#!/bin/bash\n%s\n" % text, 0o755)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)
        os.chmod(path, mode)
        return path

    def machine(self, *settings):
        """Runs it where apt has these settings; the path of a file in the machine."""
        self.write("apt.conf", "".join('%s "%s";\n' % each for each in settings))
        run = subprocess.run([os.path.join(self.root, "tools/bare_machine_test")],
                             env={"FAKE": self.root, "WGETRC": "/nothing",
                                  "PATH": os.path.join(self.root, "path") + ":" + os.environ["PATH"]},
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.root, "work")))
        return lambda name: os.path.join(self.root, "machine", name.lstrip("/"))

    def read(self, path):
        with open(os.path.join(self.root, path)) as text:
            return text.read()

    def test_no_settings(self):
        at = self.machine()
        self.assertEqual(self.read(at("etc/apt/sources.list")), "deb http://mirror/debian bookworm main\n")
        self.assertEqual(self.read(at("etc/apt/apt.conf.d/90machine")), "")
        self.assertEqual(self.read("debootstrap").splitlines()[:2], ["--variant=minbase", "bookworm"])
        self.assertEqual(self.read("wgetrc"), "")

    def test_other_settings_stay_out(self):
        at = self.machine(("Acquire::http::Proxy", "http://proxy:1"), ("Acquire::Retries", "3"),
                          ("Dir::Cache", "/var/cache/apt"), ("DPkg::Post-Invoke::", "/bin/false"))
        self.assertEqual(self.read(at("etc/apt/apt.conf.d/90machine")),
                         'Acquire::http::Proxy "http://proxy:1";\nAcquire::Retries "3";\n')
        self.assertFalse(os.path.exists(at("var/cache/apt")))
        self.assertFalse(os.path.exists(at("bin/false")))

    def test_files_that_settings_name_are_copied(self):
        authority = self.write("own/ca certificates/root.pem", "authority")
        certificate = self.write("own/client.pem", "certificate")
        key = self.write("own/client.key", "key", 0o600)
        finder = self.write("own/find_proxy", "program", 0o700)
        at = self.machine(("Acquire::https::CAInfo", authority), ("Acquire::https::SslCert", certificate),
                          ("Acquire::https::host.example::SslKey", key), ("Acquire::https::SslKey", key),
                          ("Acquire::http::Proxy-Auto-Detect", finder))
        for path, text in ((authority, "authority"), (certificate, "certificate"), (key, "key"),
                           (finder, "program")):
            self.assertEqual(self.read(at(path)), text)
            self.assertEqual(os.stat(at(path)).st_mode & 0o444, 0o444)  # apt's user reads them
        self.assertTrue(os.stat(at(finder)).st_mode & 0o001)
        self.assertFalse(os.stat(at(key)).st_mode & 0o111)
        options = self.read("debootstrap").splitlines()
        self.assertIn("--certificate=" + certificate, options)
        self.assertIn("--private-key=" + key, options)
        self.assertEqual(self.read("wgetrc"), "ca_certificate = %s\n" % authority)

    def test_folders_and_links(self):
        real = self.write("own/real.pem", "authority")
        folder = os.path.join(self.root, "own/certificates")
        os.mkdir(folder)
        os.symlink(real, os.path.join(folder, "0123abcd.0"))
        at = self.machine(("Acquire::https::CAPath", folder))
        self.assertEqual(self.read(at(folder + "/0123abcd.0")), "authority")
        self.assertEqual(os.listdir(at(folder)), ["0123abcd.0"])

    def test_a_file_that_is_not_there(self):
        at = self.machine(("Acquire::https::CAInfo", self.root + "/own/gone.pem"))
        self.assertFalse(os.path.exists(at(self.root + "/own/gone.pem")))


if __name__ == "__main__":
    unittest.main()
