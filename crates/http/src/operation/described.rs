//! What the document says of an operation.

use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        AllOfBuilder, ArrayBuilder, Content, Deprecated, HeaderBuilder, ObjectBuilder, Ref, RefOr, Required,
        ResponseBuilder, Schema, path,
        path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::{SchemaType, Type},
    },
};

use super::{BYTES, OTHER_PROJECT, Operation, Refusal, Requirement};
use crate::{
    error::{ErrorBody, WebDriverBody},
    query::PageParams,
};

const UNAUTHORIZED: Refusal = ("401", "The credential is missing or not valid");
const INVALID: Refusal = ("400", "A field breaks a rule");

const FORM: &str = "multipart/form-data";
const JSON: &str = "application/json";

impl Requirement {
    /// Returns the name of the credential in the table of operations.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ProjectKey => "project key",
            Self::OrganizationKey => "organization key",
            Self::AnyKey => "any API key",
            Self::Session => "project key or session token",
        }
    }

    /// Returns the reason of a 403 for all operations with this credential; `None` if it is not documented.
    const fn forbidden(self) -> Option<&'static str> {
        match self {
            Self::OrganizationKey => Some("The key is not one of the organization"),
            Self::AnyKey => Some(OTHER_PROJECT.1),
            Self::None | Self::ProjectKey | Self::Session => None,
        }
    }

    /// Returns the default reason of a 5XX for operations with this credential.
    const fn failed(self) -> &'static str {
        match self {
            Self::Session => "The session does not respond",
            _ => "The database cannot be reached",
        }
    }
}

/// Schemas by their names.
type Schemas = Vec<(String, RefOr<Schema>)>;

/// What the document says of an operation.
pub(crate) struct Description {
    pub(crate) operation: path::Operation,
    /// Functions that add the schemas to which the description refers.
    pub(crate) schemas: Vec<fn(&mut Schemas)>,
    /// Whether a body is required although its schema requires no field.
    pub(crate) is_body_required: bool,
    /// Whether the refusals that follow from the declaration are documented.
    has_implied_refusals: bool,
    /// The status of the response that was declared last.
    last_status: &'static str,
    not_found: &'static str,
}

impl Description {
    /// Returns the description of an operation with the parameters of its path. `not_found` is the reason of a 404.
    pub(super) fn new(path: &str, id: &str, tag: &str, not_found: &'static str) -> Self {
        let parameters = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        let parameter =
            |name| ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let parameters = parameters.map(|name| parameter(name).schema(Some(String::schema())).build());
        Self {
            operation: OperationBuilder::new().tag(tag).operation_id(Some(id)).parameters(Some(parameters)).build(),
            schemas: Vec::new(),
            is_body_required: false,
            has_implied_refusals: true,
            last_status: "",
            not_found,
        }
    }
}

/// Returns a reference to the schema of `T`.
fn reference<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

/// Adds the schema of `T` and the schemas to which it refers.
fn schemas<T: ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

impl Operation {
    pub(crate) fn summary(&mut self, text: &str) -> &mut Self {
        self.description.operation.summary = Some(text.to_owned());
        self
    }

    pub(crate) fn description(&mut self, text: &str) -> &mut Self {
        self.description.operation.description = Some(text.to_owned());
        self
    }

    /// Declares query parameters.
    pub(crate) fn query<T: IntoParams>(&mut self) -> &mut Self {
        self.parameters::<T>(ParameterIn::Query)
    }

    /// Declares headers of the request.
    pub(crate) fn headers<T: IntoParams>(&mut self) -> &mut Self {
        self.parameters::<T>(ParameterIn::Header)
    }

    fn parameters<T: IntoParams>(&mut self, place: ParameterIn) -> &mut Self {
        let added = T::into_params(|| Some(place.clone())).into_iter().map(without_null).map(RefOr::T);
        self.description.operation.parameters.get_or_insert_default().extend(added);
        self
    }

    /// Declares a JSON body.
    pub(crate) fn body<T: ToSchema>(&mut self) -> &mut Self {
        self.description.schemas.push(schemas::<T>);
        self.request_body(JSON, reference::<T>())
    }

    /// Declares a JSON body in which this operation requires a field that the schema does not require.
    pub(crate) fn body_with<T: ToSchema>(&mut self, field: &str) -> &mut Self {
        self.description.schemas.push(schemas::<T>);
        let with_field = ObjectBuilder::new().required(field).build();
        let schema = AllOfBuilder::new().item(reference::<T>()).item(with_field).build();
        self.request_body(JSON, Schema::AllOf(schema).into())
    }

    /// Declares a form with files.
    pub(crate) fn form<T: ToSchema>(&mut self) -> &mut Self {
        self.description.schemas.push(schemas::<T>);
        self.request_body(FORM, reference::<T>())
    }

    /// Declares a body of bytes.
    pub(crate) fn bytes<T: ToSchema>(&mut self) -> &mut Self {
        self.request_body(BYTES, T::schema())
    }

    fn request_body(&mut self, media_type: &str, schema: RefOr<Schema>) -> &mut Self {
        let body = RequestBodyBuilder::new().content(media_type, Content::new(Some(schema))).build();
        self.description.operation.request_body = Some(body.into());
        self
    }

    /// Requires a body, even if its schema requires no field.
    pub(crate) fn requires_body(&mut self) -> &mut Self {
        self.description.is_body_required = true;
        self
    }

    /// Declares a 200 with a record.
    pub(crate) fn returns<T: ToSchema>(&mut self) -> &mut Self {
        self.responds::<T>("200", "The record")
    }

    /// Declares a 201 with the created record.
    pub(crate) fn created<T: ToSchema>(&mut self) -> &mut Self {
        self.responds::<T>("201", "Created; `Location` names the record")
    }

    /// Declares a response with this status and a record.
    pub(crate) fn responds<T: ToSchema>(&mut self, status: &'static str, description: &str) -> &mut Self {
        self.description.schemas.push(schemas::<T>);
        self.response(status, description, Some((JSON, Some(reference::<T>()))))
    }

    /// Declares a 200 with a list without pages.
    pub(crate) fn returns_list<T: ToSchema>(&mut self) -> &mut Self {
        self.description.schemas.push(schemas::<T>);
        let list = ArrayBuilder::new().items(reference::<T>()).into();
        self.response("200", "The list", Some((JSON, Some(list))))
    }

    /// Declares a 200 with one page of a list, and the parameters and headers of pagination.
    pub(crate) fn returns_page<T: ToSchema>(&mut self) -> &mut Self {
        self.query::<PageParams>().returns_list::<T>().page_headers()
    }

    /// Declares the response headers of pagination.
    pub(crate) fn page_headers(&mut self) -> &mut Self {
        self.header::<bool>("X-Has-More", "Whether there is a next page")
            .header::<u64>("X-Next-Offset", "The offset of the next page; 0 on the last page")
    }

    /// Declares a header of the response that was declared last.
    pub(crate) fn header<T: ToSchema>(&mut self, name: &str, description: &str) -> &mut Self {
        if let Some(RefOr::T(response)) =
            self.description.operation.responses.responses.get_mut(self.description.last_status)
        {
            let header = HeaderBuilder::new().schema(Some(T::schema())).description(Some(description)).build();
            response.headers.insert(name.to_owned(), header.into());
        }
        self
    }

    /// Declares a 200 with a stream of events.
    pub(crate) fn streams<T: ToSchema>(&mut self) -> &mut Self {
        self.description.schemas.push(schemas::<T>);
        self.is_stream = true;
        self.response("200", "A stream of events", Some(("text/event-stream", Some(reference::<T>()))))
    }

    /// Declares a 204.
    pub(crate) fn no_content(&mut self, description: &str) -> &mut Self {
        self.response("204", description, None)
    }

    /// Declares a response with this status and without a body.
    pub(crate) fn no_content_with(&mut self, status: &'static str, description: &str) -> &mut Self {
        self.response(status, description, None)
    }

    /// Declares a response with content of another media type. Its schema is part of the response.
    pub(crate) fn content<T: ToSchema>(
        &mut self,
        status: &'static str,
        media_type: &str,
        description: &str,
    ) -> &mut Self {
        self.response(status, description, Some((media_type, Some(T::schema()))))
    }

    /// Declares a 200 with a file.
    pub(crate) fn file(&mut self, description: &str) -> &mut Self {
        self.response("200", description, Some((BYTES, None)))
    }

    fn response(
        &mut self,
        status: &'static str,
        description: &str,
        content: Option<(&str, Option<RefOr<Schema>>)>,
    ) -> &mut Self {
        let mut response = ResponseBuilder::new().description(description);
        if let Some((media_type, schema)) = content {
            response = response.content(media_type, Content::new(schema));
        }
        self.description.operation.responses.responses.insert(status.to_owned(), response.build().into());
        self.description.last_status = status;
        self
    }

    /// Declares that the operation was removed: a 410 whose headers name the successor.
    pub(crate) fn removed(&mut self, reason: &str) -> &mut Self {
        self.description.operation.deprecated = Some(Deprecated::True);
        self.without_implied_refusals()
            .refusal("401", UNAUTHORIZED.1)
            .refusal("410", reason)
            .header::<String>("Deprecation", "When the operation was deprecated")
            .header::<String>("Sunset", "When the operation was removed")
            .header::<String>("Link", "The successor")
    }

    /// Declares refusals in addition to the [implied ones](Self::implied_refusals).
    pub(crate) fn refuses<const N: usize>(&mut self, refusals: [Refusal; N]) -> &mut Self {
        for (status, reason) in refusals {
            self.refusal(status, reason);
        }
        self
    }

    /// Leaves out the implied refusals.
    fn without_implied_refusals(&mut self) -> &mut Self {
        self.description.has_implied_refusals = false;
        self
    }

    /// Declares the reason of a 5XX, in place of the default for operations with this credential.
    pub(crate) fn fails(&mut self, reason: &str) -> &mut Self {
        self.refusal("5XX", reason)
    }

    fn refusal(&mut self, status: &'static str, reason: &str) -> &mut Self {
        let is_webdriver = self.path.starts_with("/wd/");
        let body = if is_webdriver { reference::<WebDriverBody>() } else { reference::<ErrorBody>() };
        self.response(status, reason, Some((JSON, Some(body))))
    }

    /// Adds the implied refusals whose statuses are not declared.
    pub(crate) fn add_implied_refusals(&mut self) {
        for (status, reason) in self.implied_refusals() {
            if self.description.has_implied_refusals
                && !self.description.operation.responses.responses.contains_key(status)
            {
                self.refusal(status, reason);
            }
        }
    }

    /// Returns the refusals that follow from the rest of the declaration.
    fn implied_refusals(&self) -> Vec<Refusal> {
        let mut implied = Vec::new();
        if self.description.operation.request_body.is_some() {
            implied.extend([INVALID, ("413", "The body is too large")]);
            if self.has_form() {
                implied.push(("415", "The body is not a form"));
            }
        } else if self.description.operation.parameters.iter().flatten().any(is_query) {
            implied.push(("400", "A parameter breaks a rule"));
        }
        if self.requirement == Requirement::None {
            return implied;
        }
        implied.extend([UNAUTHORIZED, ("429", "The key has sent too many requests")]);
        implied.extend(self.requirement.forbidden().map(|reason| ("403", reason)));
        if self.path.contains('{') {
            implied.push(("404", self.description.not_found));
        }
        implied.push(("5XX", self.requirement.failed()));
        implied
    }

    fn has_form(&self) -> bool {
        matches!(&self.description.operation.request_body, Some(RefOr::T(body)) if body.content.contains_key(FORM))
    }
}

fn is_query(parameter: &RefOr<Parameter>) -> bool {
    matches!(parameter, RefOr::T(parameter) if matches!(parameter.parameter_in, ParameterIn::Query))
}

/// Removes null from the types of a parameter: an optional parameter is absent, never null.
fn without_null(mut parameter: Parameter) -> Parameter {
    if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &mut object.schema_type
    {
        types.retain(|one| *one != Type::Null);
        if let [one] = &types[..] {
            object.schema_type = SchemaType::Type(one.clone());
        }
    }
    parameter
}
