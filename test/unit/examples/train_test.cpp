// SPDX-License-Identifier: Apache-2.0
// The program `train` as a user runs it: exit codes, messages, logs, memory, and equal bits.

#include "protrain/io/json.hpp"
#include "test/unit/examples/command.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace train_test {

using protrain::io::json;
using protrain::io::read_file;
using protrain::io::write_file;
using protrain_test::command;
using protrain_test::lines_of;
using protrain_test::scratch_folder;
using protrain_test::split;

namespace {

constexpr auto binary = "examples/train";

/// A text that is the same whatever the repository holds.
std::string sample_text() {
  std::string out;
  for (int i = 0; i < 2000; ++i) {
    out += "line " + std::to_string(i * i % 997) + " of a poem without rhyme\n";
  }
  return out;
}

struct fixture {
  scratch_folder folder;
  std::string text = folder / "text.txt";
  fixture() { write_file(text, sample_text()); }

  command& run(std::string const& words) {
    auto all = split("--text " + text);
    for (std::string const& w : split(words)) {
      all.push_back(w);
    }
    last_ = std::make_unique<command>(binary, all);
    return last_->wait();
  }

  /// The bits of every loss and norm, from the log.
  std::vector<std::string> bits(std::string const& words) {
    std::string const log = folder / "log.jsonl";
    command const& c = run(words + " --log " + log);
    CAPTURE(words);
    CAPTURE(c.err);
    REQUIRE(c.code == 0);
    std::vector<std::string> out;
    for (std::string const& line : lines_of(log)) {
      json const step = json::parse(line);
      out.push_back(step["loss_bits"].get<std::string>() +
                    step["grad_norm_bits"].get<std::string>());
    }
    out.push_back(c.line("bits"));
    return out;
  }

 private:
  std::unique_ptr<command> last_;
};

}  // namespace

TEST_CASE_FIXTURE(fixture, "help, with every flag") {
  command c(binary, {"--help"});
  CHECK(c.wait().code == 0);
  CHECK(c.err.empty());
  for (char const* const flag :
       {"model",       "text",       "device",   "dtype", "state", "gpu-memory", "host-memory",
        "micro-batch", "accumulate", "sequence", "steps", "seed",  "lr",         "threads",
        "clip",        "dropout",    "plan",     "log",   "plain", "help"}) {
    CHECK(c.says("\n  --" + std::string(flag) + " "));
  }
}

TEST_CASE_FIXTURE(fixture, "every plan and the plain loop give the same bits") {
  for (std::string const job :
       {"--steps 4",
        "--steps 3 --dtype bf16 --accumulate 3 --micro-batch 2 --clip 0.5",
        "--steps 3 --model tiny-llama",
        "--steps 3 --world 3 --clip 0.5 --dropout 0.1",
        "--steps 3 --world 2 --model tiny-llama --dtype bf16 --accumulate 5",
        "--steps 3 --model tiny-llama --dtype bf16 --accumulate 2 --clip 0.5 --dropout 0.1"}) {
    auto const plain = bits(job + " --plain");
    CHECK(plain.size() > 3);
    for (std::string const plan : {"",
                                   "--device serial",
                                   "--plan keep_all",
                                   "--plan offload_all",
                                   "--plan checkpoint_all",
                                   "--plan persist=1,swap=2,checkpoint=2",
                                   "--plan persist=1:,buffer=9,checkpoint=1",
                                   "--plan unroll=1,swap=1",
                                   "--plan offload_all --threads 3",
                                   "--gpu-memory 700kB"}) {
      CAPTURE(plan);
      CHECK(bits(job + " " + plan) == plain);
    }
  }
}

TEST_CASE_FIXTURE(fixture, "so does a plan from measured times") {
  std::string const job = "--steps 3 --dropout 0.1";
  auto const plain = bits(job + " --plain");
  CHECK(bits(job + " --profile --gpu-memory 700KiB") == plain);
  CHECK(bits(job + " --profile --device serial") == plain);
  command const& c = run(job + " --profile --gpu-memory 1KiB");
  CHECK(c.code == 2);  // not one block fits
  CHECK(c.one_line());
  CHECK(c.complains("does not fit: the GPU budget is short by "));
}

TEST_CASE_FIXTURE(fixture, "seed, data, dropout and learning rate do change bits") {
  auto const base = bits("--steps 2");
  for (std::string const other : {"--seed 2", "--dropout 0", "--lr 2e-3", "--sequence 31"}) {
    CAPTURE(other);
    CHECK(bits("--steps 2 " + other).back() != base.back());
  }
  auto const llama = bits("--steps 2 --model tiny-llama");
  CHECK(bits("--steps 2 --model tiny-llama --dropout 0") == llama);
  CHECK(bits("--steps 2 --model tiny-llama --dropout 0.1").back() != llama.back());
}

TEST_CASE_FIXTURE(fixture, "the loss falls") {
  std::string const log = folder / "log.jsonl";
  for (std::string const model : {"tiny-gpt2", "tiny-llama"}) {
    CAPTURE(model);
    REQUIRE(run("--model " + model +
                " --steps 40 --micro-batch 4 --lr 3e-3 --plan keep_all --log " + log)
                .code == 0);
    auto const lines = lines_of(log);
    REQUIRE(lines.size() == 40);
    double const first = json::parse(lines.front())["loss"];
    double const last = json::parse(lines.back())["loss"];
    CHECK(first > 5.3);  // about ln 256
    CHECK(first < 5.8);
    CHECK(last < first - 1);
  }
}

TEST_CASE_FIXTURE(fixture, "memory: predicted to the byte, within the budget, by category") {
  std::string const log = folder / "log.jsonl";
  for (std::string const plan :
       {"--gpu-memory 600kB", "--plan keep_all", "--dtype bf16 --clip 1"}) {
    command const& c = run("--steps 2 " + plan + " --log " + log);
    CAPTURE(c.err);
    REQUIRE(c.code == 0);
    for (std::string const& line : lines_of(log)) {
      json const step = json::parse(line);
      CHECK(step["device_peak_bytes"] == step["device_peak_predicted_bytes"]);
      CHECK(step["categories"] == step["categories_predicted"]);
      std::uint64_t sum = 0;
      for (auto const& each : step["categories"].items()) {
        sum += each.value()["at_peak"].get<std::uint64_t>();
        CHECK(each.value()["maximum"] >= each.value()["at_peak"]);
      }
      CHECK(sum == step["device_peak_bytes"]);
      CHECK(step["host_pinned_bytes"] > 0);
      if (plan == "--gpu-memory 600kB") {
        CHECK(step["device_peak_bytes"] <= 600'000);
      }
    }
  }
}

TEST_CASE_FIXTURE(fixture, "guards and patience change no bit") {
  std::string const job = "--steps 2 --dtype bf16 --accumulate 2 --plan offload_all";
  auto const plain = bits(job);
  CHECK(bits(job + " --debug --stall-after 60") == plain);
  CHECK(bits("--steps 2 --dtype bf16 --accumulate 2 --plain --debug") == plain);
  command const& c = run("--steps 1 --stall-after -1");
  CHECK(c.code == 1);
  CHECK(c.complains("--stall-after '-1': must be a number of seconds"));
}

TEST_CASE_FIXTURE(fixture, "what doesn't fit is refused with what is short, never changed") {
  command const& c = run("--plan keep_all --gpu-memory 700kB");
  CHECK(c.code == 2);
  CHECK(c.one_line());
  CHECK(c.complains("does not fit: the GPU budget is short by "));
  CHECK(c.complains("persist=5,buffer=0,swap=0,checkpoint=0"));
  CHECK(c.complains("--plan auto fits"));
  command const& none = run("--gpu-memory 100kB");
  CHECK(none.code == 2);
  CHECK(none.one_line());
  CHECK(none.complains("nearest is persist=0"));
  command const& host = run("--plan offload_all --host-memory 100kB");
  CHECK(host.code == 2);
  CHECK(host.complains("host budget is short by "));
}

TEST_CASE_FIXTURE(fixture, "what is short makes it fit: to the byte") {
  command const& c = run("--plan keep_all --gpu-memory 1kB");
  auto const at = c.err.find("which needs ");
  REQUIRE(at != std::string::npos);
  std::uint64_t const needs = std::stoull(c.err.substr(at + 12));
  std::string const plan = "--steps 1 --plan keep_all --gpu-memory ";
  CHECK(run(plan + std::to_string(needs)).code == 0);
  CHECK(run(plan + std::to_string(needs - 1)).code == 2);
}

TEST_CASE_FIXTURE(fixture, "values beyond the maximum mean the maximum, and that is said") {
  command const& c = run("--steps 1 --plan persist=9999,checkpoint=1");
  CHECK(c.code == 0);
  CHECK(c.says("changed     persist 9999 -> 5"));
}

TEST_CASE_FIXTURE(fixture, "bad input: one line that names it, exit 1, nothing trained") {
  for (std::string const words : {"--steps x",
                                  "--steps 0",
                                  "--steps",
                                  "--steps 2 --steps 3",
                                  "--step 3",
                                  "stray",
                                  "--device cuda",
                                  "--dtype fp8",
                                  "--dtype fp16",
                                  "--state split_master",
                                  "--dtype bf16 --state fp32",
                                  "--gpu-memory 12XB",
                                  "--gpu-memory -5",
                                  "--host-memory 1e9",
                                  "--micro-batch 0",
                                  "--micro-batch 99999999999",
                                  "--micro-batch auto",
                                  "--micro-batch 1048576 --accumulate 65536",
                                  "--accumulate -1",
                                  "--sequence 33",
                                  "--seed 18446744073709551616",
                                  "--lr nan",
                                  "--lr -1",
                                  "--threads 0",
                                  "--threads all",
                                  "--clip -0.5",
                                  "--dropout 1",
                                  "--plan fast",
                                  "--plan persist",
                                  "--plan persist=-1",
                                  "--plan persist=1,persist=2",
                                  "--plan time=during_backward --clip 1",
                                  "--plan persist=77:",
                                  "--plan /nonexistent.json",
                                  "--model /nonexistent.json",
                                  "--model /tmp",
                                  "--plain=1",
                                  "--log /nonexistent/log"}) {
    command const& c = run(words);
    CAPTURE(words);
    CAPTURE(c.err);
    CHECK(c.code == 1);
    CHECK(c.one_line());
    CHECK(c.complains("train: "));
    CHECK_FALSE(c.says("step 1/"));
  }
}

TEST_CASE_FIXTURE(fixture, "bad models: the file and the field are named") {
  std::string const good = read_file("examples/models/tiny-gpt2.json");
  std::string const path = folder / "model.json";
  auto const with = [&](std::string const& from, std::string const& to) -> command const& {
    std::string model = good;
    auto const at = model.find(from);
    REQUIRE(at != std::string::npos);
    write_file(path, model.replace(at, from.size(), to));
    return run("--steps 1 --model " + path);
  };
  CHECK(with("\"n_layer\": 4", "\"n_layer\": 2").code == 0);
  for (std::string const value : {"-1", "0", "4611686018427387904", "2.5", "\"4\"", "null"}) {
    command const& c = with("\"n_layer\": 4", "\"n_layer\": " + value);
    CAPTURE(c.err);
    CHECK(c.code == 1);
    CHECK(c.one_line());
    CHECK(c.complains(path + ": n_layer is " + value));
  }
  command const& other = with("\"gpt2\"", "\"opt\"");
  CHECK(other.code == 1);
  CHECK(other.complains("model_type is \"opt\": must be one of gpt2, llama"));
  command const& llama = with("\"gpt2\"", "\"llama\"");
  CHECK(llama.code == 1);
  CHECK(llama.complains(path + ": num_hidden_layers: is missing"));
  command const& letters = with("\"vocab_size\": 256", "\"vocab_size\": 255");
  CHECK(letters.code == 1);
  CHECK(letters.complains("needs at least 256"));
  CHECK(with(good, std::string(100'000, '[')).code == 1);
  CHECK(with(good, "not json").complains("is not JSON"));
}

TEST_CASE_FIXTURE(fixture, "bad texts") {
  std::string const missing = folder / "missing";
  command c(binary, {"--text", missing});
  CHECK(c.wait().code == 1);
  CHECK(c.complains(missing));
  write_file(folder / "short", "0123456789");
  command s(binary, {"--text", folder / "short"});
  CHECK(s.wait().code == 1);
  CHECK(s.complains("has 10 bytes, a sample needs 33"));
}

TEST_CASE_FIXTURE(fixture, "run facts beside the log, which reads as JSON and holds its promise") {
  std::string const log = folder / "log.jsonl";
  command const& c = run("--steps 3 --micro-batch 2 --accumulate 2 --log " + log);
  REQUIRE(c.code == 0);
  json const facts = json::parse(read_file(log + ".meta.json"));
  CHECK(facts["plan"] == c.line("plan        "));
  CHECK(facts["job"]["accumulate"] == 2);
  CHECK(facts["model"]["config"]["model_type"] == "gpt2");
  CHECK(facts["text"]["bytes"] == sample_text().size());
  std::uint64_t n = 0;
  for (std::string const& line : lines_of(log)) {
    json const step = json::parse(line);
    CHECK(step["step"] == ++n);
    CHECK(step["tokens"] == 2 * 2 * 32);
    CHECK(step["seconds"] > 0);
    CHECK(step["grad_norm_clipped"] == step["grad_norm"]);
    CHECK(step["skipped"] == false);
  }
  CHECK(n == 3);
}

TEST_CASE_FIXTURE(fixture, "clipping: the norm before and after") {
  std::string const log = folder / "log.jsonl";
  REQUIRE(run("--steps 2 --clip 0.5 --log " + log).code == 0);
  for (std::string const& line : lines_of(log)) {
    json const step = json::parse(line);
    CHECK(step["grad_norm"] > 0.5);
    CHECK(step["grad_norm_clipped"].get<double>() == doctest::Approx(0.5).epsilon(1e-5));
  }
}

TEST_CASE_FIXTURE(fixture, "a log that can't be written ends the run with 3") {
  std::string const log = folder / "full";
  std::filesystem::create_symlink("/dev/full", log);
  command const& c = run("--steps 2 --log " + log);
  CHECK(c.code == 3);
  CHECK(c.complains(log));
}

TEST_CASE_FIXTURE(fixture, "no terminal: no control characters") {
  command const& c = run("--steps 30");
  CHECK(c.code == 0);
  CHECK(c.out.find('\r') == std::string::npos);
  CHECK(c.out.find('\x1b') == std::string::npos);
  CHECK(c.says("step 30/30"));
}

TEST_CASE_FIXTURE(fixture, "Ctrl-C stops after the step: 130, whole lines") {
  std::string const log = folder / "log.jsonl";
  command c(binary, {"--text", text, "--steps", "100000000", "--log", log});
  for (int i = 0; i < 600; ++i) {  // at most a minute
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::error_code none;
    if (std::filesystem::exists(log, none) && std::filesystem::file_size(log, none) > 4096) {
      break;
    }
  }
  c.interrupt();
  CHECK(c.wait().code == 130);
  CHECK(c.one_line());
  CHECK(c.complains("interrupted: stopped cleanly after step "));
  auto const lines = lines_of(log);
  REQUIRE_FALSE(lines.empty());
  CHECK(c.complains("after step " + json::parse(lines.back())["step"].dump() + " of"));
}

TEST_CASE("without a text, from any folder: this repository") {
  scratch_folder const folder;
  command c(binary, {"--steps", "1"}, folder.path());
  CHECK(c.wait().code == 0);
  CHECK(c.says("text        this repository's sources and documents: "));
}

}  // namespace train_test
