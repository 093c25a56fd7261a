// SPDX-License-Identifier: Apache-2.0
// The main function of tests that hold nothing but static_assert.
// Such a test has passed once it is built.

int main() {}
