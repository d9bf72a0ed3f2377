"""The chat template of an exported model in Jinja2. It does what `render_chat` does, with special
tokens in place of marks."""

import json

from tokenmill.formats.chat import ROLES, START, TURN_END, TURN_TOKENS
from tokenmill.formats.tokenizer import SPECIAL_TOKENS


def chat_template(*, marks_answers: bool) -> str:
    """The template. With `marks_answers`, what the assistant writes is inside `{% generation %}`,
    and so is the end of its turn.

    transformers needs these blocks for `return_assistant_tokens_mask`, and TRL for
    `assistant_only_loss`; other readers of templates do not know them. Of a content that is a list
    of parts, it then takes the texts; other readers join them before they render. Calls of tools
    become JSON, as `clean` writes them; `tojson` of other readers may write another one, so for
    them there are none.

    A reader parses the rendered text, so the spelling of a special token in a message would become
    that token. Therefore it gets a space after its first character, as in `< |turn_end|>`, and no
    message can open or end a turn.
    """
    broken = "".join(f" | replace('{token}', '{token[0]} {token[1:]}')" for token in SPECIAL_TOKENS)
    starts = {role: TURN_TOKENS[mark] for role, mark in START.items()}
    end = TURN_TOKENS[TURN_END]
    answer = starts["assistant"]
    begin_answer = "{% generation %}" if marks_answers else ""
    end_answer = "{% endgeneration %}" if marks_answers else ""
    text_of_parts_or_calls = (
        "{%- if said is iterable and said is not string and said is not mapping -%}"
        "{%- set parts = namespace(texts=[]) -%}"
        "{%- for part in said -%}"
        "{%- set parts.texts = parts.texts + [part if part is string else part['text']] -%}"
        "{%- endfor -%}"
        "{%- set said = parts.texts | select('string') | join('\\n') -%}"
        "{%- endif -%}"
        "{%- set calls = message['tool_calls'] or message['function_call'] -%}"
        "{%- if calls -%}"
        "{%- set said = said | trim + '\\n' + calls | tojson(separators=(',', ':')) -%}"
        "{%- endif -%}"
    )
    return (
        f"{{%- set roles = {json.dumps(ROLES)} -%}}{{%- set starts = {json.dumps(starts)} -%}}"
        "{%- for message in messages -%}{%- set said = message['content'] or '' -%}"
        f"{text_of_parts_or_calls if marks_answers else ''}"
        "{%- if said | trim -%}"
        "{%- set role = roles.get(message['role'] | lower) -%}"
        "{%- set name = '' if role else (message['role'] | trim | capitalize + ': ') -%}"
        f"{{%- set content = (name + said | trim){broken} + '{end}' -%}}"
        "{%- if role == 'assistant' -%}"
        f"{{{{- '{answer}' -}}}}{begin_answer}{{{{- content -}}}}{end_answer}"
        "{%- else -%}"
        "{{- starts[role or 'user'] + content -}}"
        "{%- endif -%}{%- endif -%}{%- endfor -%}"
        f"{{%- if add_generation_prompt -%}}{{{{- '{answer}' -}}}}{{%- endif -%}}"
    )
