// SPDX-License-Identifier: Apache-2.0
// The program `plan` as a user runs it: text, JSON, files that `train` takes, refusals.

#include "protrain/hw/presets.hpp"
#include "protrain/io/json.hpp"
#include "protrain/io/machine.hpp"
#include "test/unit/examples/command.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace plan_test {

using protrain::io::json;
using protrain::io::write_file;
using protrain_test::command;
using protrain_test::scratch_folder;
using protrain_test::split;

namespace {

constexpr auto binary = "examples/plan";

struct answer {
  int code;
  std::string out;
  std::string err;
};

answer plan(std::string const& words) {
  command c(binary, split(words));
  c.wait();
  return {c.code, c.out, c.err};
}

std::string gpt2_xl() {
  return R"({"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25,
             "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257})";
}

}  // namespace

TEST_CASE("help, with every flag") {
  answer const a = plan("--help");
  CHECK(a.code == 0);
  for (char const* const flag : {"model",
                                 "machine",
                                 "micro-batch",
                                 "sequence",
                                 "accumulate",
                                 "clip",
                                 "dtype",
                                 "state",
                                 "gpu-memory",
                                 "host-memory",
                                 "plan",
                                 "json",
                                 "help"}) {
    CHECK(a.out.find("\n  --" + std::string(flag) + " ") != std::string::npos);
  }
}

TEST_CASE("a plan that names save levels is made with them, and reads back") {
  answer const a = plan("--machine h200x1 --plan swap=0,checkpoint=0,levels=1:2");
  CHECK(a.code == 0);
  CHECK(a.err.empty());
  CHECK(a.out.find(",levels=1:2,") != std::string::npos);
  CHECK(a.out.find("kept (2 at level attention, 1 at level cheap)") != std::string::npos);
  scratch_folder const folder;
  answer const j = plan("--machine h200x1 --plan swap=0,checkpoint=0,levels=1:2 --json");
  CHECK(j.code == 0);
  CHECK(json::parse(j.out)["plan"]["levels"] == json::array({1, 2}));
  write_file(folder / "p.json", j.out);
  answer const again = plan("--machine h200x1 --plan " + (folder / "p.json"));
  CHECK(again.code == 0);
  CHECK(again.out.find(",levels=1:2,") != std::string::npos);
  answer const wrong = plan("--plan levels=1:2:3:4:5");
  CHECK(wrong.code == 1);
  CHECK(wrong.err.find("at most four save levels") != std::string::npos);
}

TEST_CASE("text: the plan, why, and memory") {
  answer const a = plan("--machine h200x1 --micro-batch 8");
  CHECK(a.code == 0);
  CHECK(a.err.empty());
  for (char const* const part : {"job         tiny-gpt2: ",
                                 "machine     h200x1",
                                 "plan        persist=",
                                 "bound by    ",
                                 "why         ",
                                 "instead     ",
                                 "sensitivity 1.00 GiB more of device memory saves ",
                                 "sensitivity 10 % more bandwidth to and from the host saves ",
                                 "sensitivity a rank more has no device",
                                 "filled at most in each of 12 equal parts",
                                 "knob        persist=",
                                 "device bytes",
                                 "host bytes",
                                 "  peak  "}) {
    CAPTURE(part);
    CHECK(a.out.find(part) != std::string::npos);
  }
}

TEST_CASE("JSON: one object with what is promised; its string plans the same again") {
  answer const a = plan("--json --dtype fp32 --gpu-memory 700kB");
  REQUIRE(a.code == 0);
  json const o = json::parse(a.out);
  CHECK(o["protrain"] == "plan");
  CHECK(o["version"] == 1);
  CHECK(o["feasible"] == true);
  CHECK(o["model"]["type"] == "gpt2");
  CHECK(o["job"]["dtype"] == "fp32");
  CHECK(o["predicted"]["gpu_peak_bytes"] <= 700'000);
  for (char const* const name : {"plan",
                                 "predicted",
                                 "memory",
                                 "bound_by",
                                 "alternatives",
                                 "sensitivity",
                                 "knobs",
                                 "machine"}) {
    CHECK(o.contains(name));
  }
  std::string const string = o["plan"]["string"];
  json again = json::parse(plan("--json --dtype fp32 --gpu-memory 700kB --plan " + string).out);
  CHECK(o["plan"]["sizing"] == "uniform_grid");
  CHECK(again["plan"]["sizing"] == "given");  // by the string, which holds a chunk size
  again["plan"]["sizing"] = o["plan"]["sizing"];
  CHECK(again["plan"] == o["plan"]);
  CHECK(again["predicted"] == o["predicted"]);
  json const bf16 = json::parse(plan("--json").out);
  CHECK(bf16["job"]["dtype"] == "bf16");
  CHECK(bf16["job"]["state"] == "split_master");
}

TEST_CASE("JSON: what more would buy, and memory by time up to the peak") {
  json const o = json::parse(plan("--json --machine rtx3090x4 --world 3 --micro-batch 8").out);
  json const& more = o["sensitivity"];
  CHECK(more["bandwidth"]["percent"] == 10);
  CHECK(more["bandwidth"]["seconds_per_iteration"] <= o["predicted"]["seconds_per_iteration"]);
  CHECK(more["rank"]["world"] == 4);
  json const four = json::parse(plan("--json --machine rtx3090x4 --world 4 --micro-batch 8").out);
  CHECK(more["rank"]["string"] == four["plan"]["string"]);
  CHECK(more["rank"]["seconds_per_iteration"] == four["predicted"]["seconds_per_iteration"]);
  CHECK(more["rank"]["tokens_per_second"] == four["predicted"]["tokens_per_second"]);
  CHECK(four["sensitivity"]["rank"].is_null());
  for (auto const& [series, peak] :
       {std::pair("gpu_bytes", "gpu_peak_bytes"), std::pair("host_bytes", "host_bytes")}) {
    std::vector<std::uint64_t> const parts = o["memory_over_time"][series];
    CHECK(parts.size() == 32);
    CHECK(*std::max_element(parts.begin(), parts.end()) == o["predicted"][peak]);
  }
  // A plan that is asked for is what more of something is compared with.
  json const fixed = json::parse(plan("--json --machine rtx3090x1 --plan keep_all").out);
  CHECK(fixed["sensitivity"]["string"] == fixed["plan"]["string"]);
  CHECK(fixed["sensitivity"]["seconds_saved"] == 0);
}

TEST_CASE("ranks of a host share its memory once") {
  auto const short_of = [](std::string const& words) {
    return json::parse(plan("--json --plan offload_all " + words).out);
  };
  std::uint64_t const needs = short_of("--machine rtx3090x4 --world 4")["predicted"]["host_bytes"];
  CHECK(short_of("--machine rtx3090x4 --world 4 --host-memory " +
                 std::to_string(4 * needs))["feasible"] == true);
  json const none =
      short_of("--machine rtx3090x4 --world 4 --host-memory " + std::to_string(4 * needs - 4));
  CHECK(none["short"]["where"] == "host");
  CHECK(none["short"]["bytes"] <= 4);
}

TEST_CASE("LLaMA: the built-in one, and a file; a plan of one type is refused for another") {
  json const tiny = json::parse(plan("--json --model tiny-llama").out);
  CHECK(tiny["model"]["type"] == "llama");
  CHECK(tiny["model"]["parameters"] == 65'824);
  CHECK(tiny["model"]["blocks"] == 6);
  scratch_folder const folder;
  std::string const model = folder / "llama-3.2-1b.json";
  write_file(model, R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "rope_theta": 500000.0,
      "tie_word_embeddings": true, "head_dim": 64})");
  json const o = json::parse(
      plan("--json --machine h200x1 --sequence 1024 --gpu-memory 16GiB --model " + model).out);
  CHECK(o["model"]["parameters"] == 1'235'814'400);
  CHECK(o["predicted"]["gpu_peak_bytes"] <= 17'179'869'184);
  std::string const file = folder / "plan.json";
  write_file(file, tiny.dump());
  answer const other = plan("--model tiny-gpt2 --plan " + file);
  CHECK(other.code == 1);
  CHECK(other.err.find("model.type is llama: is another job's, this one has gpt2") !=
        std::string::npos);
  CHECK(plan("--model tiny-llama --plan " + file).code == 0);
}

TEST_CASE("every family: from its configuration, on a machine that nobody has") {
  scratch_folder const folder;
  std::string const model = folder / "config.json";
  std::string const sizes = R"("hidden_size": 256, "num_hidden_layers": 4,
      "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 128)";
  for (std::string const type : {"llama", "mistral", "qwen2", "qwen3", "opt"}) {
    CAPTURE(type);
    std::string const inner = type == "opt" ? "ffn_dim" : "intermediate_size";
    write_file(model, "{\"model_type\": \"" + type + "\", " + sizes + ", \"" + inner + "\": 1024}");
    answer const text = plan("--machine rtx3090x1 --model " + model);
    CHECK(text.code == 0);
    CHECK(text.err.empty());
    CHECK(text.out.find("trace       analytic") != std::string::npos);
    json const o = json::parse(plan("--json --machine rtx3090x1 --model " + model).out);
    CHECK(o["model"]["type"] == type);
    CHECK(o["trace"] == "analytic");
    CHECK(o["model"]["blocks"] == 6);
    answer const blocks = plan("--trace blocks --model " + model);
    CHECK((blocks.code == 0) == (type == "llama"));
    if (type != "llama") {
      CHECK(blocks.err.find("model_type is \"" + type + "\": must be one of gpt2, llama") !=
            std::string::npos);
      command train("examples/train", {"--model", model});
      CHECK(train.wait().code == 1);
      CHECK(train.complains("model_type is \"" + type + "\": must be one of gpt2, llama"));
    }
  }
}

TEST_CASE("planning takes what training refuses, on every machine, unless blocks are asked for") {
  scratch_folder const folder;
  std::string const model = folder / "config.json";
  write_file(model, R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 300,
      "max_position_embeddings": 64, "attention_bias": true,
      "rope_scaling": {"rope_type": "llama3", "factor": 32.0}})");
  answer const a = plan("--model " + model);
  CHECK(a.code == 0);
  CHECK(a.out.find("trace       analytic") != std::string::npos);
  answer const blocks = plan("--trace blocks --model " + model);
  CHECK(blocks.code == 1);
  CHECK(blocks.err.find("config.json: rope_scaling.rope_type is ") != std::string::npos);
}

TEST_CASE("traces: the blocks of train on its machine, operators elsewhere, or as one asks") {
  CHECK(plan("--machine host-demo").out.find("trace       blocks") != std::string::npos);
  CHECK(plan("--machine h200x1").out.find("trace       analytic") != std::string::npos);
  CHECK(plan("--machine h200x1 --trace blocks").out.find("trace       blocks") !=
        std::string::npos);
  auto const peak = [](std::string const& words) {
    json const o = json::parse(plan("--json --machine h200x1 --plan keep_all " + words).out);
    return o["predicted"]["gpu_peak_bytes"].get<std::uint64_t>();
  };
  CHECK(peak("--attention eager") > peak(""));
  CHECK(peak("--logit-chunks 4") < peak(""));
  for (std::string const words : {"--trace blocks --attention eager",
                                  "--trace blocks --logit-chunks 2",
                                  "--attention sparse",
                                  "--logit-chunks 0",
                                  "--trace measured",
                                  "--machine h200x1 --debug"}) {
    CAPTURE(words);
    answer const a = plan(words);
    CHECK(a.code == 1);
    CHECK(a.out.empty());
    CHECK(std::count(a.err.begin(), a.err.end(), '\n') == 1);
  }
}

TEST_CASE("a part of a model: state for what is trained alone, adapters beside what isn't") {
  auto const planned = [](std::string const& words) {
    return json::parse(
        plan("--json --machine h200x1 --model tiny-llama --plan keep_all " + words).out);
  };
  auto const optimizer = [&](std::string const& words) {
    return planned(words)["memory"]["gpu"]["optimizer"].get<std::uint64_t>();
  };
  // Granules of 128 elements: a norm of 32 has one. Split master: 10 bytes an element beside the value.
  CHECK(optimizer("--trainable model.norm") == 128 * 10);
  CHECK(optimizer("--trainable layers.0.*down_proj.weight") == 32 * 96 * 10);
  CHECK(optimizer("") > 65'824 * 10);
  // Of rank 4 beside q_proj [32, 32] and v_proj [16, 32] in each of 4 layers.
  CHECK(planned("--lora-rank 4")["model"]["parameters"] == 65'824 + 4 * (4 * 64 + 4 * 48));
  std::uint64_t const adapters = optimizer("--lora-rank 4");
  CHECK(adapters > 0);
  CHECK(adapters < optimizer("") / 10);
  CHECK(optimizer("--lora-rank 4 --trainable model.norm") == adapters + 128 * 10);
  CHECK(optimizer("--lora-rank 4 --lora-targets q_proj") * 2 == adapters);
  for (auto const& [words, complaint] : std::vector<std::pair<std::string, std::string>>{
           {"--trainable (", "--trainable '('"},
           {"--trainable nothing", "names no parameter"},
           {"--lora-targets q_proj", "needs --lora-rank"},
           {"--lora-rank 2 --lora-targets norm", "names no matrix"},
           {"--lora-rank 1.5", "--lora-rank '1.5'"},
           {"--lora-rank 33", "--lora-rank '33'"},  // wider than the model
           {"--trace blocks --lora-rank 2", "--lora-rank '2'"},
           {"--trainable " + std::string(2000, '('), "at most 1000 characters"}}) {
    CAPTURE(words);
    answer const a = plan("--machine h200x1 --model tiny-llama " + words);
    CHECK(a.code == 1);
    CHECK(a.out.empty());
    CHECK(a.err.find(complaint) != std::string::npos);
    CHECK(std::count(a.err.begin(), a.err.end(), '\n') == 1);
  }
}

TEST_CASE("sizes and times that nothing counts are refused, not wrapped") {
  scratch_folder const folder;
  std::string const model = folder / "huge.json";
  write_file(model, R"({"model_type": "llama", "hidden_size": 1048576, "num_hidden_layers": 4,
      "num_attention_heads": 1024, "intermediate_size": 4194304, "vocab_size": 256,
      "max_position_embeddings": 16777216})");
  auto slow = protrain::hw::h200x1();
  slow.host_to_device = {1};
  slow.concurrent = {};
  protrain::io::write_machine(folder / "slow.json", slow);
  for (std::string const& words :
       std::vector<std::string>{"--machine h200x1 --model " + model,
                                "--machine h200x1 --sequence 1048576 --model " + model,
                                "--sequence 1024 --model " + model,
                                "--sequence 1024 --trace blocks --model " + model,
                                "--micro-batch 64 --machine " + (folder / "slow.json")}) {
    CAPTURE(words);
    answer const a = plan(words);
    CAPTURE(a.err);
    CHECK(a.code == 1);
    CHECK(a.err.find("--model '") != std::string::npos);
    CHECK(std::count(a.err.begin(), a.err.end(), '\n') == 1);
  }
  // Not refused, but too large: a step that takes minutes.
  CHECK(plan("--machine h200x1 --sequence 16 --model " + model).code == 2);
}

TEST_CASE("ways to train side by side, also where the budget holds none") {
  answer const text = plan("--machine h200x1 --compare");
  CHECK(text.code == 0);
  for (char const* const way :
       {"all offloaded", "all checkpointed", "all kept", "paper's knobs", "ours"}) {
    CHECK(text.out.find("\n  " + std::string(way)) != std::string::npos);
  }
  json const o = json::parse(plan("--machine h200x1 --compare --json").out);
  REQUIRE(o["comparison"].size() == 5);
  for (json const& way : o["comparison"]) {
    CHECK(way["feasible"] == true);
    CHECK(way["predicted"]["seconds_per_iteration"] >=
          o["comparison"][4]["predicted"]["seconds_per_iteration"]);
  }
  CHECK(o["comparison"][4]["string"] == o["plan"]["string"]);
  CHECK_FALSE(json::parse(plan("--machine h200x1 --json").out).contains("comparison"));
  answer const none = plan("--gpu-memory 1kB --compare");
  CHECK(none.code == 2);
  CHECK(none.out.find("does not fit: short by ") != std::string::npos);
  json const short_of = json::parse(plan("--gpu-memory 1kB --compare --json").out);
  CHECK(short_of["comparison"][0]["gpu_short_bytes"] > 0);
}

TEST_CASE("the best micro-batch: sizes that were looked at, the best of them planned") {
  std::string const job = "--machine h200x1 --gpu-memory 2MiB --micro-batch ";
  answer const text = plan(job + "auto");
  CHECK(text.code == 0);
  CHECK(text.err.empty());
  CHECK(text.out.find("micro-batch           a step    tokens/s") == 0);
  json o = json::parse(plan(job + "auto --json").out);
  std::uint64_t const best = o["job"]["micro_batch"];
  CHECK(text.out.find("\n* " + std::to_string(best) + " ") != std::string::npos);
  CHECK(text.out.find(" x " + std::to_string(best) + " x 32 tokens a step") != std::string::npos);
  bool seen = false;
  for (json const& size : o["micro_batches"]) {
    CHECK(text.out.find("\n" + std::string(size["micro_batch"] == best ? "* " : "  ") +
                        size["micro_batch"].dump() + " ") != std::string::npos);
    if (size["feasible"] == false) {
      CHECK_FALSE(size.contains("tokens_per_second"));
      continue;
    }
    CHECK(size["tokens_per_second"] <= o["predicted"]["tokens_per_second"]);
    CHECK(size["gpu_peak_bytes"] <= 2 << 20);
    seen = seen || size["micro_batch"] == best;
  }
  CHECK(seen);
  o.erase("micro_batches");
  CHECK(o == json::parse(plan(job + std::to_string(best) + " --json").out));
}

TEST_CASE("the best micro-batch: with blocks, levels and a comparison; not with a plan's file") {
  CHECK(plan("--micro-batch auto --gpu-memory 1MiB").out.find("\n* ") != std::string::npos);
  answer const more = plan(
      "--machine h200x1 --gpu-memory 2MiB --micro-batch auto --compare "
      "--plan swap=0,checkpoint=0,levels=1:2");
  CHECK(more.code == 0);
  CHECK(more.out.find(",levels=1:2,") != std::string::npos);
  CHECK(more.out.find("\n  all kept") != std::string::npos);
  scratch_folder const folder;
  write_file(folder / "p.json", plan("--json").out);
  answer const file = plan("--micro-batch auto --plan " + (folder / "p.json"));
  CHECK(file.code == 1);
  CHECK(file.err.find("leave out --micro-batch auto") != std::string::npos);
}

TEST_CASE("the best micro-batch where not even one sample fits is one, which lacks memory") {
  answer const none = plan("--micro-batch auto --gpu-memory 1kB");
  CHECK(none.code == 2);
  CHECK(none.err == plan("--gpu-memory 1kB").err);
  CHECK(none.out.find("\n  1                 does not fit\n") != std::string::npos);
  json const o = json::parse(plan("--micro-batch auto --gpu-memory 1kB --json").out);
  CHECK(o["feasible"] == false);
  CHECK(o["micro_batches"].size() == 1);
  CHECK(plan("--micro-batch auto --plan time=during_backward --clip 1").code == 1);
  CHECK(plan("--micro-batch best").err.find("must be an integer") != std::string::npos);
}

TEST_CASE(
    "four devices share a host's memory: four times what one rank takes is enough, less isn't") {
  std::string const job = "--machine rtx3090x4 --json --plan ";
  json const o = json::parse(plan(job + "offload_all").out);
  std::uint64_t const mine = o["predicted"]["host_bytes"];
  REQUIRE(mine > 0);
  std::string const same = job + o["plan"]["string"].get<std::string>() + " --host-memory ";
  CHECK(plan(same + std::to_string(4 * mine)).code == 0);
  CHECK(plan(same + std::to_string(4 * mine - 4)).code == 2);
}

TEST_CASE("a timeline to look at, and no file where there is no plan") {
  scratch_folder const folder;
  CHECK(plan("--machine h200x1 --perfetto " + (folder / "t.json")).code == 0);
  json const t = json::parse(protrain::io::read_file(folder / "t.json"));
  CHECK(t["traceEvents"].size() > 20);
  answer const levels =
      plan("--machine h200x1 --plan levels=1:2 --perfetto " + (folder / "l.json"));
  CHECK(levels.code == 0);
  CHECK(json::parse(protrain::io::read_file(folder / "l.json"))["traceEvents"].size() > 20);
  CHECK(plan("--gpu-memory 1kB --perfetto " + (folder / "none.json")).code == 2);
  CHECK_FALSE(std::filesystem::exists(folder / "none.json"));
  answer const nowhere = plan("--perfetto /nowhere/t.json");
  CHECK(nowhere.code != 0);
  CHECK(nowhere.out.empty());
  CHECK(nowhere.err.find("/nowhere/t.json") != std::string::npos);
}

TEST_CASE("a model of 32B on one GPU: state that fits both memories, and state that doesn't") {
  scratch_folder const folder;
  std::string const model = folder / "qwen2.5-32b.json";
  write_file(model, R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120,
      "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
      "intermediate_size": 27648, "max_position_embeddings": 131072})");
  std::string const job =
      "--json --machine h200x1 --host-memory 500GB --sequence 1024 --model " + model + " ";
  auto const at = [&](std::string const& words) { return plan(job + words); };
  answer const once = at("--gpu-memory 16GiB");
  REQUIRE(once.code == 0);
  CHECK(json::parse(once.out)["model"]["parameters"] == 32'763'876'352);
  answer const clipped = at("--gpu-memory 16GiB --clip 1");
  CHECK(clipped.code == 0);
  answer const twice = at("--gpu-memory 16GiB --accumulate 2");
  CHECK(twice.code == 2);
  CHECK(json::parse(twice.out)["short"]["bytes"] > 0);
  CHECK(at("--accumulate 2").code == 0);
}

TEST_CASE("who holds the memory, of a plan and of one that doesn't fit") {
  answer const fits = plan("--plan offload_all --holders");
  CHECK(fits.code == 0);
  CHECK(fits.out.find("device memory: ") != std::string::npos);
  CHECK(fits.out.find("host memory: ") != std::string::npos);
  CHECK(fits.out.find("optimizer state of chunk ") != std::string::npos);
  answer const not_there = plan("--plan keep_all --gpu-memory 1kB --holders");
  CHECK(not_there.code == 2);
  auto const needs = not_there.err.find("which needs ");
  REQUIRE(needs != std::string::npos);
  CHECK(not_there.err.find(
            "\ndevice memory: " + std::to_string(std::stoull(not_there.err.substr(needs + 12))) +
            " bytes at instruction ") != std::string::npos);
  CHECK(not_there.err.find("\n  largest holders\n") != std::string::npos);
}

TEST_CASE("what doesn't fit: exit 2, the shortage as text and as JSON") {
  answer const text = plan("--gpu-memory 1kB");
  CHECK(text.code == 2);
  CHECK(text.out.empty());
  CHECK(text.err.find("plan: does not fit: the GPU budget is short by ") == 0);
  answer const a = plan("--gpu-memory 1kB --json");
  CHECK(a.code == 2);
  json const o = json::parse(a.out);
  CHECK(o["feasible"] == false);
  CHECK(o["short"]["where"] == "gpu");
  CHECK(o["short"]["bytes"] > 0);
  std::uint64_t const needs = o["nearest"]["gpu_bytes"];
  CHECK(plan("--gpu-memory " + std::to_string(needs)).code == 0);
  json const host = json::parse(plan("--json --plan offload_all --host-memory 1kB").out);
  CHECK(host["short"]["where"] == "host");
}

TEST_CASE("a plan file trains; another job's file is refused by the first difference") {
  scratch_folder const folder;
  std::string const file = folder / "p.json";
  std::string const text = folder / "text";
  write_file(text, std::string(1000, 'x'));
  answer const a = plan("--json --dtype fp32 --gpu-memory 700kB");
  write_file(file, a.out);
  command train("examples/train", {"--text", text, "--steps", "2", "--plan", file});
  CHECK(train.wait().code == 0);
  CHECK(json::parse(a.out)["plan"]["string"] == train.line("plan        "));
  command other("examples/train",
                {"--text", text, "--steps", "2", "--plan", file, "--micro-batch", "2"});
  CHECK(other.wait().code == 1);
  CHECK(other.one_line());
  CHECK(other.complains("job.micro_batch is 1: is another job's, this one has 2"));
}

TEST_CASE("a large model on a large machine, in seconds and without its memory") {
  scratch_folder const folder;
  std::string const model = folder / "xl.json";
  write_file(model, gpt2_xl());
  auto const start = std::chrono::steady_clock::now();
  answer const a =
      plan("--json --machine h200x1 --micro-batch 8 --gpu-memory 24GiB --model " + model);
  CAPTURE(a.err);
  REQUIRE(a.code == 0);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::minutes(2));
  json const o = json::parse(a.out);
  CHECK(o["model"]["parameters"] == 1'557'611'200);
  CHECK(o["model"]["blocks"] == 50);
  CHECK(o["predicted"]["gpu_peak_bytes"] <= std::uint64_t{24} << 30U);
}

TEST_CASE("machines by file") {
  scratch_folder const folder;
  auto m = protrain::hw::h200x1();
  m.name = "mine";
  protrain::io::write_machine(folder / "m.json", m);
  json const o = json::parse(plan("--json --machine " + (folder / "m.json")).out);
  CHECK(o["machine"] == "mine");
  auto broken = protrain::io::to_json(m);
  broken["host_threads"] = -4;
  write_file(folder / "b.json", broken.dump());
  answer const b = plan("--machine " + (folder / "b.json"));
  CHECK(b.code == 1);
  CHECK(b.err.find("b.json: host_threads is -4: must be an integer") != std::string::npos);
}

TEST_CASE("bad input: one line, exit 1") {
  for (std::string const words : {"--machine h900",
                                  "--machine",
                                  "--steps 3",
                                  "--dtype fp16",
                                  "--dtype fp64",
                                  "--state fp32",
                                  "--json=yes",
                                  "--sequence 1000",
                                  "--plan buffer=x",
                                  "--plan defer=1,time=after_backward",
                                  "--model nowhere.json"}) {
    answer const a = plan(words);
    CAPTURE(words);
    CAPTURE(a.err);
    CHECK(a.code == 1);
    CHECK(a.out.empty());
    CHECK(a.err.find("plan: ") == 0);
    CHECK(std::count(a.err.begin(), a.err.end(), '\n') == 1);
  }
}

}  // namespace plan_test
