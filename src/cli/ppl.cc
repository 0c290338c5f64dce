// `kipp ppl`: perplexity of a text.
#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/number_flag.h"
#include "cli/output.h"
#include "cli/perplexity.h"
#include "cli/progress.h"

namespace kipp::cli {
namespace {

struct PplFlags {
  ModelFlags model;
  std::string path = "-";
  int32_t window = 0;  // 0: the context
  int32_t stride = 0;  // 0: half the window
  bool plain = false;
  bool json = false;
};

struct Windowing {
  size_t window;
  size_t stride;
};

Result<Windowing> choose_windows(const Model& model, const PplFlags& flags) {
  if (model.context() < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--context: perplexity needs at least 2 positions, found {}", model.context()));
  }
  const int32_t window = flags.window > 0 ? flags.window : model.context();
  if (window < 2 || window > model.context()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--window: expected 2 to {} (the context), found {}", model.context(), window));
  }
  const int32_t stride = flags.stride > 0 ? flags.stride : window / 2;
  if (stride >= window) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--stride: expected 1 to {} (less than the window), found {}", window - 1, stride));
  }
  return Windowing{static_cast<size_t>(window), static_cast<size_t>(stride)};
}

std::string report(const Perplexity& result, size_t num_tokens, const Windowing& windowing, bool json) {
  if (!json) {
    return fmt::format("tokens: {} ({} scored)\nmean NLL: {:.6f}\nperplexity: {:.4f}\n", num_tokens, result.num_scored,
                       result.mean_nll(), result.value());
  }
  const auto integer = [](size_t value) { return Json::number(static_cast<int64_t>(value)); };
  const double value = result.value();  // infinite from a mean of 709 on, which JSON cannot say
  return write_json(Json::object({{"tokens", integer(num_tokens)},
                                  {"scored_tokens", integer(result.num_scored)},
                                  {"mean_nll", Json::number(result.mean_nll())},
                                  {"perplexity", std::isfinite(value) ? Json::number(value) : Json()},
                                  {"window", integer(windowing.window)},
                                  {"stride", integer(windowing.stride)}})) +
         "\n";
}

Result<ExitCode> measure(Model& model, const PplFlags& flags) {
  KIPP_ASSIGN(const Windowing windowing, choose_windows(model, flags));
  KIPP_ASSIGN(const std::string text, read_file(flags.path));
  const auto special = flags.plain ? SpecialTokens::kPlain : SpecialTokens::kParse;
  KIPP_ASSIGN(const auto ids, model.tokenizer().encode(text, {.special_tokens = special}));
  if (ids.size() < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("the text has {} tokens: perplexity needs at least 2", ids.size()));
  }
  KIPP_ASSIGN(Session session, model.new_session());
  const auto windows = plan_windows(ids.size(), windowing.window, windowing.stride);
  Perplexity result;
  {
    Progress bar("ppl", ids.size() - 1, "tokens");
    const auto progress = [&bar](const Perplexity& so_far) {
      const bool any = so_far.num_scored > 0;
      bar.update(so_far.num_scored, any ? fmt::format("perplexity so far {:.4f}", so_far.value()) : "");
      return !interrupted();
    };
    KIPP_ASSIGN(result, perplexity(session, ids, windows, model.tokenizer().num_tokens(), progress));
  }
  if (interrupted()) {
    print_message(fmt::format("kipp: interrupted after {} scored tokens\n", result.num_scored));
    return ExitCode::kInterrupted;
  }
  KIPP_TRY(standard_output().write(report(result, ids.size(), windowing, flags.json)));
  return ExitCode::kOk;
}

ExitCode ppl(const PplFlags& flags) {
  const auto model = open_model(flags.model);
  if (!model) {
    return fail(ExitCode::kModel, model.error());
  }
  return end_of(measure(**model, flags));
}

constexpr std::string_view kExamples =
    "  echo \"The capital of France is Paris.\" | kipp ppl -m models/kipp-kipp-demo-bf16.gguf\n"
    "  kipp ppl -m models/kipp-kipp-demo-bf16.gguf --window 64 --stride 32 --json LICENSE\n";

}  // namespace

void add_ppl_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("ppl", "Perplexity of a text");
  const auto flags = std::make_shared<PplFlags>();
  command->add_option("FILE", flags->path, "Text file; - is standard input")->capture_default_str();
  add_model_flags(*command, flags->model);
  add_number_flag<int32_t>(*command, "--window", flags->window, {.min = 2, .max = 1 << 20},
                           "Tokens of a window (default: the context)");
  add_number_flag<int32_t>(*command, "--stride", flags->stride, {.min = 1},
                           "Tokens from one window to the next (default: half the window); a "
                           "scored token sees at least window - stride before it");
  command->add_flag("--plain", flags->plain, "Control tokens such as <|im_end|> in the text are text");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] {
    if (flags->window > 0 && flags->stride >= flags->window) {  // without --window the model's context decides
      throw CLI::ValidationError("--stride", fmt::format("expected 1 to {} (less than the window), found {}",
                                                         flags->window - 1, flags->stride));
    }
    exit_code = ppl(*flags);
  });
}

}  // namespace kipp::cli
