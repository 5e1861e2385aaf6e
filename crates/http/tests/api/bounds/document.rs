//! The bounded values of the requests in the OpenAPI document.

use std::fmt;

use regex::Regex;
use serde_json::Value;

/// The keywords of a schema that bound or describe a value.
const BOUNDS: [&str; 11] = [
    "format",
    "pattern",
    "enum",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// A step from a request to a value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    /// A member of a list.
    Item,
    /// A name in a map.
    Key,
    /// A value in a map.
    Value,
}

/// The part of a request that has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Query,
    Json,
    Form,
}

/// A bounded value of a request.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The id of the operation.
    pub(super) operation: String,
    pub(super) method: String,
    /// The path with the names of its parameters.
    pub(super) path: String,
    pub(super) part: Part,
    pub(super) steps: Vec<Step>,
    pub(super) schema: Value,
}

/// Writes `create_browser network.allowed_hosts[]`. The name in a map is `{#}`, the value `{}`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.operation)?;
        for (n, step) in self.steps.iter().enumerate() {
            match step {
                Step::Field(name) if n == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item => f.write_str("[]")?,
                Step::Key => f.write_str("{#}")?,
                Step::Value => f.write_str("{}")?,
            }
        }
        Ok(())
    }
}

impl Place {
    /// Returns the name of the innermost field. Errors write members of lists as `[0]` or as `.0`, as `item` says.
    pub(super) fn field(&self, item: &str) -> String {
        // The options of a session are a member of the capabilities of WebDriver.
        let options = self.steps.iter().position(|step| *step == Step::Field("casement:options".to_owned()));
        let last = self.steps.iter().rposition(|step| matches!(step, Step::Field(_))).unwrap();
        let mut written = String::new();
        for step in &self.steps[options.map_or(0, |at| at + 1)..=last] {
            match step {
                Step::Field(name) if written.is_empty() => written.push_str(name),
                Step::Field(name) => written.extend([".", name]),
                Step::Item | Step::Key | Step::Value => written.push_str(item),
            }
        }
        written
    }

    /// Returns a bound of the schema.
    pub(super) fn bound(&self, name: &str) -> Option<i64> {
        self.schema[name].as_i64()
    }

    pub(super) fn pattern(&self) -> Option<&str> {
        self.schema["pattern"].as_str()
    }

    /// Returns whether a text is as long as the schema says.
    pub(super) fn has_room_for(&self, text: &str) -> bool {
        let length = i64::try_from(text.chars().count()).unwrap();
        self.bound("minLength").is_none_or(|min| length >= min)
            && self.bound("maxLength").is_none_or(|max| length <= max)
    }

    /// Returns whether the schema accepts a text.
    pub(super) fn accepts(&self, text: &str) -> bool {
        let matches = |schema: &Value| {
            let pattern = schema["pattern"].as_str();
            pattern.is_none_or(|pattern| Regex::new(pattern).unwrap_or_else(|error| panic!("{error}")).is_match(text))
        };
        let listed = self.schema["enum"].as_array().is_none_or(|words| words.iter().any(|word| word == text));
        matches(&self.schema)
            && (self.schema["not"].is_null() || !matches(&self.schema["not"]))
            && self.has_room_for(text)
            && listed
    }
}

struct Walk<'a> {
    document: &'a Value,
    places: Vec<Place>,
}

impl Walk<'_> {
    /// Adds the bounded values of a schema. `place` is where the schema stands.
    fn add(&mut self, schema: &Value, place: &Place, depth: usize) {
        assert!(depth < 24, "the schemas of {place} are nested too deeply");
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.document.pointer(reference.trim_start_matches('#')).unwrap().clone();
            return self.add(&target, place, depth + 1);
        }
        if BOUNDS.iter().any(|name| !schema[name].is_null()) {
            self.places.push(Place { schema: schema.clone(), ..place.clone() });
        }
        for name in ["allOf", "oneOf", "anyOf"] {
            schema[name].as_array().into_iter().flatten().for_each(|one| self.add(one, place, depth + 1));
        }
        if schema["then"].is_object() {
            self.add(&schema["then"], place, depth + 1);
        }
        let mut below = |schema: &Value, step: Step| {
            if schema.is_object() {
                let mut place = place.clone();
                place.steps.push(step);
                self.add(schema, &place, depth + 1);
            }
        };
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            below(schema, Step::Field(name.clone()));
        }
        below(&schema["items"], Step::Item);
        below(&schema["propertyNames"], Step::Key);
        below(&schema["additionalProperties"], Step::Value);
    }
}

/// Returns every bounded value of every request in the document.
pub(super) fn places() -> Vec<Place> {
    let document: Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let mut walk = Walk { document: &document, places: Vec::new() };
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let place = |part, steps| Place {
                operation: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase(),
                path: path.clone(),
                part,
                steps,
                schema: Value::Null,
            };
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                if parameter["in"] == "query" {
                    let name = Step::Field(parameter["name"].as_str().unwrap().to_owned());
                    walk.add(&parameter["schema"], &place(Part::Query, vec![name]), 0);
                }
            }
            for (kind, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
                let part = if kind == "multipart/form-data" { Part::Form } else { Part::Json };
                walk.add(&content["schema"], &place(part, Vec::new()), 0);
            }
        }
    }
    assert!(walk.places.len() > 500, "{}", walk.places.len());
    walk.places
}
