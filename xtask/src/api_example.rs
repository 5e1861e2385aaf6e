//! Examples of operations for curl, Python and JavaScript, made from the sample values of `api_samples.json`.

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use crate::api_reference::Operation;

/// What the index of the reference says about all examples.
pub(crate) const INTRODUCTION: &str = include_str!("api_introduction.md");

/// For each operation: `client`, the method of the Python client; `query`; and the body as `body` (JSON), `form` (pairs
/// of a name and a value, `@` before the name of a file) or `file`.
const SAMPLES: &str = include_str!("api_samples.json");

pub(crate) fn samples() -> Result<Value> {
    serde_json::from_str(SAMPLES).context("api_samples.json")
}

/// A call with sample values.
pub(crate) struct Example<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a Map<String, Value>>,
    body: Body<'a>,
    answer: Answer,
}

enum Body<'a> {
    None,
    Json(&'a Value),
    Form(Vec<(&'a str, &'a str)>),
    File(&'a str),
}

/// What an example does with the response.
enum Answer {
    Json,
    Events,
    File(&'static str),
    Text,
    Empty,
}

/// The notation of a literal.
#[derive(Clone, Copy)]
enum Notation {
    Json,
    Python,
}

impl<'a> Example<'a> {
    pub(crate) fn of(operation: &'a Operation, sample: &'a Value) -> Result<Self> {
        let body = match (sample.get("body"), sample["form"].as_array(), sample["file"].as_str()) {
            (Some(body), ..) => Body::Json(body),
            (_, Some(parts), _) => {
                let pair = |part: &'a Value| Some((part[0].as_str()?, part[1].as_str()?));
                Body::Form(parts.iter().map(pair).collect::<Option<_>>().context("a form has pairs of texts")?)
            }
            (.., Some(file)) => Body::File(file),
            _ => Body::None,
        };
        let answer = match operation.success().map(|(content_type, _)| content_type) {
            None => Answer::Empty,
            Some("application/json") => Answer::Json,
            Some("text/event-stream") => Answer::Events,
            Some("image/png") => Answer::File("screenshot.png"),
            Some("video/mp4") => Answer::File("replay.mp4"),
            Some("application/zip") => Answer::File("archive.zip"),
            Some("text/plain") => Answer::Text,
            Some(_) => Answer::File("content.bin"),
        };
        let query = sample["query"].as_object();
        Ok(Self { method: &operation.method, path: operation.path, query, body, answer })
    }

    pub(crate) fn curl(&self) -> String {
        let path = self.path_with(|name| format!("${}", name.to_uppercase()));
        let mut lines = vec![format!("curl --fail-with-body -X {} \"$CASEMENT_URL{path}\"", self.method)];
        lines.push("-H \"Authorization: Bearer $CASEMENT_KEY\"".to_owned());
        for (name, value) in self.query.into_iter().flatten() {
            lines.push(format!("--url-query '{name}={}'", plain(value)));
        }
        match &self.body {
            Body::None => {}
            Body::Json(body) => lines.push(format!("--json '{}'", literal(body, Notation::Json))),
            Body::Form(parts) => lines.extend(parts.iter().map(|(name, value)| format!("-F '{name}={value}'"))),
            Body::File(file) => lines.push(format!("--data-binary @{file}")),
        }
        match self.answer {
            Answer::Events => lines.push("--no-buffer".to_owned()),
            Answer::File(name) => lines.push(format!("-o {name}")),
            Answer::Json | Answer::Text | Answer::Empty => {}
        }
        lines.join(" \\\n  ")
    }

    pub(crate) fn python(&self) -> String {
        let path = self.path_with(|name| format!("{{{name}}}"));
        let mut words = vec![format!("f\"{{url}}{path}\"")];
        if let Some(query) = self.query {
            words.push(format!("params={}", object(query, Notation::Python)));
        }
        match &self.body {
            Body::None => {}
            Body::Json(body) => words.push(format!("json={}", literal(body, Notation::Python))),
            Body::Form(parts) => {
                let part = |(name, value): &(&str, &str)| match value.strip_prefix('@') {
                    Some(file) => format!("(\"{name}\", open(\"{file}\", \"rb\"))"),
                    None => format!("(\"{name}\", (None, {}))", text(value)),
                };
                words.push(format!("files=[{}]", parts.iter().map(part).collect::<Vec<_>>().join(", ")));
            }
            Body::File(file) => words.push(format!("data=open(\"{file}\", \"rb\")")),
        }
        if matches!(self.answer, Answer::Events) {
            words.push("stream=True".to_owned());
        }
        let call =
            format!("answer = api.{}({})\nanswer.raise_for_status()", self.method.to_lowercase(), words.join(", "));
        match self.answer {
            Answer::Json => format!("{call}\nprint(answer.json())"),
            Answer::Events => {
                format!("{call}\nfor line in answer.iter_lines(decode_unicode=True):\n    print(line)")
            }
            Answer::File(name) => format!("{call}\nopen(\"{name}\", \"wb\").write(answer.content)"),
            Answer::Text => format!("{call}\nprint(answer.text)"),
            Answer::Empty => call,
        }
    }

    pub(crate) fn javascript(&self) -> String {
        let path = self.path_with(|name| format!("${{{}}}", camel(name)));
        let query = self
            .query
            .map_or_else(String::new, |query| format!("?${{new URLSearchParams({})}}", object(query, Notation::Json)));
        let mut lines = Vec::new();
        let mut headers = "headers".to_owned();
        let mut body = None;
        match &self.body {
            Body::None => {}
            Body::Json(value) => {
                "{ ...headers, 'content-type': 'application/json' }".clone_into(&mut headers);
                body = Some(format!("JSON.stringify({})", literal(value, Notation::Json)));
            }
            Body::Form(parts) => {
                lines.push("const form = new FormData();".to_owned());
                for (name, value) in parts {
                    lines.push(match value.strip_prefix('@') {
                        Some(file) => format!("form.append('{name}', await openAsBlob('{file}'), '{file}');"),
                        None => format!("form.append('{name}', '{value}');"),
                    });
                }
                body = Some("form".to_owned());
            }
            Body::File(file) => body = Some(format!("await readFile('{file}')")),
        }
        let headers = if headers == "headers" { headers } else { format!("headers: {headers}") };
        lines.push(format!("const answer = await fetch(`${{url}}{path}{query}`, {{"));
        lines.push(format!("  method: '{}',\n  {headers},", self.method));
        lines.extend(body.map(|body| format!("  body: {body},")));
        lines.push("});\nif (!answer.ok) throw new Error(await answer.text());".to_owned());
        lines.extend(match self.answer {
            Answer::Json => Some("console.log(await answer.json());".to_owned()),
            Answer::Events => Some(
                "for await (const text of answer.body.pipeThrough(new TextDecoderStream())) console.log(text);"
                    .to_owned(),
            ),
            Answer::File(name) => Some(format!("await writeFile('{name}', answer.body);")),
            Answer::Text => Some("console.log(await answer.text());".to_owned()),
            Answer::Empty => None,
        });
        lines.join("\n")
    }

    /// Returns the path with each placeholder as a variable, which is named after the resource before it.
    fn path_with(&self, variable: impl Fn(&str) -> String) -> String {
        let mut resource = "";
        let segments = self.path.split('/').map(|segment| {
            let Some(name) = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else {
                resource = segment;
                return segment.to_owned();
            };
            variable(&placeholder(resource, name))
        });
        segments.collect::<Vec<_>>().join("/")
    }
}

/// Returns the name of the variable for a placeholder of a path.
fn placeholder(resource: &str, name: &str) -> String {
    let one = singular(resource);
    match name {
        "id" => format!("{one}_id"),
        "id_or_name" => one,
        _ => name.to_owned(),
    }
}

/// Returns what one item of a collection in a path is called.
pub(crate) fn singular(resource: &str) -> String {
    match resource.rsplit('_').next().unwrap_or_default() {
        "browsers" => "session".to_owned(),
        "process" => "process".to_owned(),
        word => {
            word.strip_suffix("ies").map_or_else(|| word.trim_end_matches('s').to_owned(), |stem| format!("{stem}y"))
        }
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |camel, word| camel + &word[..1].to_uppercase() + &word[1..])
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text(value: &str) -> String {
    Value::from(value).to_string()
}

/// Returns a value as JSON, which is JavaScript too, or as Python, with spaces between its parts.
fn literal(value: &Value, notation: Notation) -> String {
    match (value, notation) {
        (Value::Bool(true), Notation::Python) => "True".to_owned(),
        (Value::Bool(false), Notation::Python) => "False".to_owned(),
        (Value::Null, Notation::Python) => "None".to_owned(),
        (Value::Array(items), _) => {
            let items: Vec<_> = items.iter().map(|item| literal(item, notation)).collect();
            format!("[{}]", items.join(", "))
        }
        (Value::Object(fields), _) => object(fields, notation),
        (other, _) => other.to_string(),
    }
}

fn object(fields: &Map<String, Value>, notation: Notation) -> String {
    let field = |(name, value): (&String, &Value)| format!("{}: {}", text(name), literal(value, notation));
    format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
}
