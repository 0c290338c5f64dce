// Fields of a chat: messages with their parts and calls, tools, what the template is told. They are checked here and
// read by parse_chat_request(), as on the command line.
#include "server/openai/request_fields.h"

namespace kipp::openai {
namespace {

constexpr size_t kMaxTools = 128;

const std::vector<Field>& text_part_fields() {
  static const std::vector<Field> fields = {
      {"type", choice({"text"}), "The only kind of content part.", true},
      {"text", string(), "The text; parts are joined by a line feed.", true},
  };
  return fields;
}

const std::vector<Field>& called_function_fields() {
  static const std::vector<Field> fields = {
      {"name", string(1), "The function's name.", true},
      {"arguments", one_of({string(), labelled(map(any_value()), "an object")}),
       "JSON text, which goes into the prompt as it is, or the object itself.", true},
  };
  return fields;
}

const std::vector<Field>& tool_call_fields() {
  static const std::vector<Field> fields = {
      {"id", string(), "The call's id; the template does not show it."},
      {"type", choice({"function"}), "The only kind of tool.", false, Json::string("function")},
      {"function", object(called_function_fields()), "What was called.", true},
  };
  return fields;
}

const std::vector<Field>& message_fields() {
  static const std::vector<Field> fields = {
      {"role", choice({"system", "user", "assistant", "tool"}), "Who speaks.", true},
      {"content", one_of({string(), labelled(array(object(text_part_fields()), 1), "an array of text parts")}),
       "What is said. Required, but of an assistant it may be null or absent. Control tokens in it are text."},
      {"reasoning_content", string(), "An assistant's thoughts; the template shows those of the current turn."},
      {"tool_calls", array(object(tool_call_fields())), "An assistant's calls."},
      {"tool_call_id", string(), "The call that a tool's message answers; the template does not show it."},
      {"name", string(), "The speaker's name; the template does not show it."},
      unsupported_field("refusal", {Json::string("")}),
      unsupported_field("annotations", {Json::array()}),
      unsupported_field("audio"),
      unsupported_field("function_call"),
  };
  return fields;
}

const std::vector<Field>& declared_function_fields() {
  static const std::vector<Field> fields = {
      {"name", string(1), "The function's name.", true},
      {"description", string(), "What it does."},
      {"parameters", labelled(map(any_value()), "an object"), "JSON Schema of the arguments."},
      unsupported_field("strict", {Json::boolean(false)}),
  };
  return fields;
}

const std::vector<Field>& tool_fields() {
  static const std::vector<Field> fields = {
      {"type", choice({"function"}), "The only kind of tool.", true},
      {"function", object(declared_function_fields()), "What the model may call.", true},
  };
  return fields;
}

const std::vector<Field>& template_fields() {
  static const std::vector<Field> fields = {
      {"enable_thinking", boolean(),
       "false: the answer comes without reasoning. No effect on instruct-2507; false is refused by thinking-2507."},
  };
  return fields;
}

}  // namespace

const std::vector<Field>& chat_fields() {
  static const std::vector<Field> fields = {
      {"messages", array(object(message_fields()), 1), "The conversation so far.", true},
      {"tools", array(object(tool_fields()), 0, kMaxTools), "Functions that the model may call."},
      {"chat_template_kwargs", object(template_fields()), "What the chat template is told."},
      {"enable_thinking", boolean(), "The same as `chat_template_kwargs.enable_thinking`."},
      {"add_generation_prompt", boolean(),
       "The prompt ends with the beginning of an assistant's turn. Default: true, and false with "
       "`continue_final_message`."},
  };
  return fields;
}

Field continue_final_message_field() {
  return {"continue_final_message", boolean(),
          "The last message, an assistant's, is the beginning of the answer, which goes on from it.", false,
          Json::boolean(false)};
}

}  // namespace kipp::openai
