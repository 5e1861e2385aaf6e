//! The parts of the OpenAPI document from which commands are made.

use anyhow::Context as _;
use serde_json::Value;

/// The OpenAPI document of the API.
pub(crate) struct Document(Value);

/// An operation of the API.
pub(crate) struct Operation {
    pub(crate) method: http::Method,
    pub(crate) path: String,
    pub(crate) summary: String,
    /// The names of the parameters in the path, in order.
    pub(crate) path_parameters: Vec<String>,
    pub(crate) query: Vec<Field>,
    pub(crate) body: Body,
    pub(crate) response: Response,
}

/// A query parameter, or a field of a body.
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) is_required: bool,
    pub(crate) can_be_null: bool,
    pub(crate) description: String,
    /// The values that are possible; empty if they are not listed.
    pub(crate) choices: Vec<String>,
}

/// The kind of a field's value.
#[derive(Clone)]
pub(crate) enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    /// A resource by its id or its name.
    Reference,
    Texts,
    /// Texts by names.
    TextMap,
    /// A file of a form.
    File,
    /// An object with these fields, which are simple.
    Object(Vec<Field>),
    /// Any other JSON.
    Json,
}

/// The body of a request.
pub(crate) enum Body {
    None,
    Json(Vec<Field>),
    Form(Vec<Field>),
    Bytes,
}

/// The content of a successful response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    None,
    Record,
    List,
    File,
    Stream,
}

impl Operation {
    /// Returns the place of the first parameter among the segments of the path.
    pub(crate) fn first_parameter(&self) -> Option<usize> {
        self.path.trim_start_matches('/').split('/').position(|segment| segment.starts_with('{'))
    }
}

impl Document {
    /// Parses the document.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_json::from_str(text).context("the OpenAPI document is not JSON")?))
    }

    /// Returns the operation with this id.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn operation(&self, id: &str) -> anyhow::Result<Operation> {
        let (path, method, about) = self.find(id).with_context(|| format!("the API has no operation {id}"))?;
        let segments = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        let query = members(&about["parameters"]).filter(|parameter| parameter["in"] == "query");
        Ok(Operation {
            method: method.to_uppercase().parse()?,
            path: path.to_owned(),
            summary: text(about, "summary"),
            path_parameters: segments.map(str::to_owned).collect(),
            query: query.map(|parameter| self.parameter(parameter)).collect(),
            body: self.body(&about["requestBody"]),
            response: self.response(&about["responses"]),
        })
    }

    fn find(&self, id: &str) -> Option<(&str, &str, &Value)> {
        let paths = self.0["paths"].as_object()?.iter();
        let mut all = paths.flat_map(|(path, methods)| {
            methods
                .as_object()
                .into_iter()
                .flatten()
                .map(move |(method, about)| (path.as_str(), method.as_str(), about))
        });
        all.find(|(_, _, about)| about["operationId"] == id)
    }

    /// Follows references, and leaves out the variant `null`.
    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
            return self.resolved(&self.0["components"]["schemas"][name]);
        }
        let mut variants = members(&schema["oneOf"]).filter(|variant| variant["type"] != "null");
        match (variants.next(), variants.next()) {
            (Some(only), None) => self.resolved(only),
            _ => schema,
        }
    }

    fn parameter(&self, parameter: &Value) -> Field {
        let schema = &parameter["schema"];
        Field {
            name: text(parameter, "name"),
            kind: self.kind(schema),
            is_required: parameter["required"] == true,
            can_be_null: false,
            description: text(parameter, "description"),
            choices: self.choices(schema),
        }
    }

    fn body(&self, body: &Value) -> Body {
        let Some((media_type, content)) = body["content"].as_object().and_then(|all| all.iter().next()) else {
            return Body::None;
        };
        let fields = self.fields(&content["schema"]);
        match media_type.as_str() {
            "application/json" => Body::Json(fields),
            "multipart/form-data" => Body::Form(fields),
            _ => Body::Bytes,
        }
    }

    /// Returns the fields of an object, also of one that is composed of several schemas.
    fn fields(&self, schema: &Value) -> Vec<Field> {
        let schema = self.resolved(schema);
        let parts: Vec<&Value> = match schema["allOf"].as_array() {
            Some(parts) => parts.iter().map(|part| self.resolved(part)).collect(),
            None => vec![schema],
        };
        let is_required =
            |name: &str| parts.iter().any(|part| members(&part["required"]).any(|required| required == name));
        let properties = parts.iter().flat_map(|part| part["properties"].as_object().into_iter().flatten());
        properties
            .map(|(name, schema)| Field {
                name: name.clone(),
                kind: self.kind(schema),
                is_required: is_required(name),
                can_be_null: can_be_null(schema),
                description: self.description(schema),
                choices: self.choices(schema),
            })
            .collect()
    }

    fn description(&self, schema: &Value) -> String {
        let variants = members(&schema["oneOf"]).map(|variant| text(variant, "description"));
        let mut found = std::iter::once(text(schema, "description")).chain(variants).filter(|found| !found.is_empty());
        found.next().unwrap_or_else(|| text(self.resolved(schema), "description"))
    }

    fn choices(&self, schema: &Value) -> Vec<String> {
        let schema = self.resolved(schema);
        let listed = if schema["enum"].is_array() { schema } else { self.resolved(&schema["items"]) };
        members(&listed["enum"]).filter_map(|choice| Some(choice.as_str()?.to_owned())).collect()
    }

    fn kind(&self, schema: &Value) -> Kind {
        let schema = self.resolved(schema);
        let is = |kind: &str| schema["type"] == kind || members(&schema["type"]).any(|one| one == kind);
        if is("boolean") {
            Kind::Boolean
        } else if is("integer") {
            Kind::Integer
        } else if is("number") {
            Kind::Number
        } else if is("string") {
            if schema["format"] == "binary" { Kind::File } else { Kind::Text }
        } else if is("array") {
            if matches!(self.kind(&schema["items"]), Kind::Text) { Kind::Texts } else { Kind::Json }
        } else if schema["additionalProperties"]["type"] == "string" {
            Kind::TextMap
        } else {
            self.object_kind(schema)
        }
    }

    fn object_kind(&self, schema: &Value) -> Kind {
        let Some(properties) = schema["properties"].as_object() else { return Kind::Json };
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        if names == ["id", "name"] {
            return Kind::Reference;
        }
        let is_simple = |field: &Field| !matches!(field.kind, Kind::Object(_) | Kind::Json | Kind::File);
        Kind::Object(self.fields(schema).into_iter().filter(is_simple).collect())
    }

    fn response(&self, responses: &Value) -> Response {
        let successes = responses.as_object().into_iter().flatten().filter(|(status, _)| status.starts_with('2'));
        let mut contents = successes.filter_map(|(_, response)| response["content"].as_object()?.iter().next());
        match contents.next() {
            None => Response::None,
            Some((media_type, _)) if media_type == "text/event-stream" => Response::Stream,
            Some((media_type, content)) if media_type == "application/json" => {
                if self.resolved(&content["schema"])["type"] == "array" { Response::List } else { Response::Record }
            }
            Some(_) => Response::File,
        }
    }
}

fn can_be_null(schema: &Value) -> bool {
    members(&schema["type"]).any(|one| one == "null") || members(&schema["oneOf"]).any(|one| one["type"] == "null")
}

fn members(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(object: &Value, member: &str) -> String {
    object[member].as_str().unwrap_or_default().replace('\n', " ")
}
