//! The operations of the API. Each resource declares its own with [`Operations`]; the routes, the OpenAPI document, the names in
//! telemetry and the table in `docs/operations.md` are made from the declarations.

use actix_web::{FromRequest, Handler, HttpRequest, Responder, Route, http::Method};
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

use crate::{
    api_key, audit, auth_connection, computer, credential, credential_provider, curl, deployment,
    error::{ApiError, ErrorBody},
    extension, fs, invocation, operational, pool, process, profile, project, proxy,
    query::PageParams,
    replay,
    request::{Credential, Request},
    script, session, session_log, telemetry,
};

/// A refusal in the document: its status and the reason.
pub(crate) type Refusal = (&'static str, &'static str);

const INVALID: Refusal = ("400", "A field breaks a rule");
pub(crate) const OTHER_PROJECT: Refusal = ("403", "The key does not open the project");
pub(crate) const ARCHIVED: Refusal = ("403", "The project is archived");
pub(crate) const NAME_TAKEN: Refusal = ("409", "The name is taken");
pub(crate) const LIMIT_REACHED: Refusal = ("429", "A limit is reached");

/// The media types of bodies that are not JSON.
pub(crate) const BYTES: &str = "application/octet-stream";
const FORM: &str = "multipart/form-data";
const JSON: &str = "application/json";

/// The credential that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    None,
    ProjectKey,
    OrganizationKey,
    AnyKey,
    /// A key of the session's project, or under `/vm/{session_id}` the session's token.
    Session,
}

impl Requirement {
    /// The name in the table of operations.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ProjectKey => "project key",
            Self::OrganizationKey => "organization key",
            Self::AnyKey => "any API key",
            Self::Session => "project key or session token",
        }
    }

    /// What a 403 means for all operations with this credential, where it is documented.
    const fn forbidden(self) -> Option<&'static str> {
        match self {
            Self::OrganizationKey => Some("The key is not one of the organization"),
            Self::AnyKey => Some(OTHER_PROJECT.1),
            Self::None | Self::ProjectKey | Self::Session => None,
        }
    }

    /// What a 5XX means unless the operation says otherwise.
    const fn failed(self) -> &'static str {
        match self {
            Self::Session => "The session does not respond",
            _ => "The database cannot be reached",
        }
    }
}

/// The arguments of a handler, which name the credential that it requires.
pub(crate) trait HandlerArguments: FromRequest + 'static {
    /// The credential.
    type Credential: Credential;
}

impl<C: Credential> HandlerArguments for (Request<C>,) {
    type Credential = C;
}

/// A handler that also responds to callers without a valid credential.
impl<C: Credential> HandlerArguments for (HttpRequest, Result<Request<C>, ApiError>) {
    type Credential = C;
}

/// Schemas by their names.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

/// One operation of the API.
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The name in the document, in telemetry and in client libraries.
    pub(crate) id: &'static str,
    pub(crate) requirement: Requirement,
    pub(crate) described: path::Operation,
    /// What adds the schemas that the description refers to.
    pub(crate) schemas: Vec<fn(&mut Schemas)>,
    /// Whether a body is required although its schema requires no field.
    pub(crate) is_body_required: bool,
    /// Whether the refusals that follow from the declaration are documented.
    has_implied_refusals: bool,
    /// Whether the response is a stream of events, which has no HEAD.
    pub(crate) is_stream: bool,
    /// The status of the response that was declared last.
    last_status: &'static str,
    not_found: &'static str,
    route: Box<dyn Fn() -> Route>,
}

/// What declares the operations of each resource.
const RESOURCES: [fn(&mut Operations); 22] = [
    session::operations,
    computer::operations,
    fs::operations,
    replay::operations,
    script::operations,
    process::operations,
    session_log::operations,
    telemetry::operations,
    curl::operations,
    auth_connection::operations,
    credential::operations,
    deployment::operations,
    invocation::operations,
    profile::operations,
    proxy::operations,
    extension::operations,
    pool::operations,
    api_key::operations,
    credential_provider::operations,
    project::operations,
    audit::operations,
    operational::operations,
];

/// All operations, and what is declared with them.
#[derive(Default)]
pub(crate) struct Operations {
    pub(crate) all: Vec<Operation>,
    tag: &'static str,
    not_found: &'static str,
}

impl Operations {
    /// Begins the operations of a resource: their tag in the document, and what a 404 means where a path names one that does not exist.
    pub(crate) fn resource(&mut self, tag: &'static str, not_found: &'static str) {
        self.tag = tag;
        self.not_found = not_found;
    }

    /// Returns the operations of all resources, with their refusals.
    pub(crate) fn declared() -> Self {
        let mut api = Self::default();
        for declare in RESOURCES {
            declare(&mut api);
        }
        api.all.iter_mut().for_each(Operation::add_implied_refusals);
        api
    }

    fn add<F, A>(&mut self, method: Method, path: &'static str, id: &'static str, handler: F) -> &mut Operation
    where
        F: Handler<A>,
        A: HandlerArguments,
        F::Output: Responder + 'static,
    {
        let parameters = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        let parameter =
            |name| ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let parameters = parameters.map(|name| parameter(name).schema(Some(String::schema())).build());
        let described =
            OperationBuilder::new().tag(self.tag).operation_id(Some(id)).parameters(Some(parameters)).build();
        self.all.push(Operation {
            method,
            path,
            id,
            requirement: A::Credential::REQUIREMENT,
            described,
            schemas: Vec::new(),
            is_body_required: false,
            has_implied_refusals: true,
            is_stream: false,
            last_status: "",
            not_found: self.not_found,
            route: Box::new(move || Route::new().to(handler.clone())),
        });
        self.all.last_mut().unwrap_or_else(|| unreachable!("one was just added"))
    }
}

macro_rules! methods {
    ($($name:ident $method:ident,)*) => {
        impl Operations {
            $(
                /// Declares an operation with this method.
                pub(crate) fn $name<F, A>(&mut self, path: &'static str, id: &'static str, handler: F) -> &mut Operation
                where
                    F: Handler<A>,
                    A: HandlerArguments,
                    F::Output: Responder + 'static,
                {
                    self.add(Method::$method, path, id, handler)
                }
            )*
        }
    };
}

methods! { get GET, post POST, put PUT, patch PATCH, delete DELETE, }

/// Returns a reference to the schema of `T`.
fn reference<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

/// Adds the schema of `T` and those that it refers to.
fn schemas<T: ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// What the document says of an operation.
impl Operation {
    pub(crate) fn summary(&mut self, text: &str) -> &mut Self {
        self.described.summary = Some(text.to_owned());
        self
    }

    pub(crate) fn description(&mut self, text: &str) -> &mut Self {
        self.described.description = Some(text.to_owned());
        self
    }

    /// Query parameters.
    pub(crate) fn query<T: IntoParams>(&mut self) -> &mut Self {
        self.parameters::<T>(ParameterIn::Query)
    }

    /// Headers of the request.
    pub(crate) fn headers<T: IntoParams>(&mut self) -> &mut Self {
        self.parameters::<T>(ParameterIn::Header)
    }

    fn parameters<T: IntoParams>(&mut self, place: ParameterIn) -> &mut Self {
        let added = T::into_params(|| Some(place.clone())).into_iter().map(without_null).map(RefOr::T);
        self.described.parameters.get_or_insert_default().extend(added);
        self
    }

    /// A JSON body.
    pub(crate) fn body<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.request_body(JSON, reference::<T>())
    }

    /// A JSON body that this operation requires to have a field which the schema does not require.
    pub(crate) fn body_with<T: ToSchema>(&mut self, field: &str) -> &mut Self {
        self.schemas.push(schemas::<T>);
        let with_field = ObjectBuilder::new().required(field).build();
        let schema = AllOfBuilder::new().item(reference::<T>()).item(with_field).build();
        self.request_body(JSON, Schema::AllOf(schema).into())
    }

    /// A form with files.
    pub(crate) fn form<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.request_body(FORM, reference::<T>())
    }

    /// A body of bytes.
    pub(crate) fn bytes<T: ToSchema>(&mut self) -> &mut Self {
        self.request_body(BYTES, T::schema())
    }

    fn request_body(&mut self, media_type: &str, schema: RefOr<Schema>) -> &mut Self {
        let body = RequestBodyBuilder::new().content(media_type, Content::new(Some(schema))).build();
        self.described.request_body = Some(body.into());
        self
    }

    /// Requires a body although none of its fields is required by itself.
    pub(crate) fn requires_body(&mut self) -> &mut Self {
        self.is_body_required = true;
        self
    }

    /// 200 with a record.
    pub(crate) fn returns<T: ToSchema>(&mut self) -> &mut Self {
        self.responds::<T>("200", "The record")
    }

    /// 201 with the record that was created.
    pub(crate) fn created<T: ToSchema>(&mut self) -> &mut Self {
        self.responds::<T>("201", "Created; `Location` names the record")
    }

    /// A record with this status.
    pub(crate) fn responds<T: ToSchema>(&mut self, status: &'static str, description: &str) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.response(status, description, Some((JSON, Some(reference::<T>()))))
    }

    /// 200 with a list that has no pages.
    pub(crate) fn returns_list<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        let list = ArrayBuilder::new().items(reference::<T>()).into();
        self.response("200", "The list", Some((JSON, Some(list))))
    }

    /// 200 with one page of a list, and the parameters and headers that lead through the pages.
    pub(crate) fn returns_page<T: ToSchema>(&mut self) -> &mut Self {
        self.query::<PageParams>().returns_list::<T>().page_headers()
    }

    /// The headers that lead to the next page.
    pub(crate) fn page_headers(&mut self) -> &mut Self {
        self.header::<bool>("X-Has-More", "Whether there is a next page")
            .header::<u64>("X-Next-Offset", "The offset of the next page; 0 on the last page")
    }

    /// A header of the response that was declared last.
    pub(crate) fn header<T: ToSchema>(&mut self, name: &str, description: &str) -> &mut Self {
        if let Some(RefOr::T(response)) = self.described.responses.responses.get_mut(self.last_status) {
            let header = HeaderBuilder::new().schema(Some(T::schema())).description(Some(description)).build();
            response.headers.insert(name.to_owned(), header.into());
        }
        self
    }

    /// 200 with a stream of events.
    pub(crate) fn streams<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.is_stream = true;
        self.response("200", "A stream of events", Some(("text/event-stream", Some(reference::<T>()))))
    }

    /// 204.
    pub(crate) fn no_content(&mut self, description: &str) -> &mut Self {
        self.response("204", description, None)
    }

    /// Content of another media type, whose schema is in the response itself.
    pub(crate) fn content<T: ToSchema>(
        &mut self,
        status: &'static str,
        media_type: &str,
        description: &str,
    ) -> &mut Self {
        self.response(status, description, Some((media_type, Some(T::schema()))))
    }

    /// 200 with a file.
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
        self.described.responses.responses.insert(status.to_owned(), response.build().into());
        self.last_status = status;
        self
    }

    /// 410: the operation has been removed, and headers name its successor.
    pub(crate) fn removed(&mut self, reason: &str) -> &mut Self {
        self.described.deprecated = Some(Deprecated::True);
        self.without_implied_refusals()
            .refusal("410", reason)
            .header::<String>("Deprecation", "When the operation was deprecated")
            .header::<String>("Sunset", "When the operation was removed")
            .header::<String>("Link", "The successor")
    }

    /// Refusals, besides [those that follow](Self::implied_refusals) from the rest of the declaration.
    pub(crate) fn refuses<const N: usize>(&mut self, refusals: [Refusal; N]) -> &mut Self {
        for (status, reason) in refusals {
            self.refusal(status, reason);
        }
        self
    }

    /// Documents no refusals but those that are declared.
    pub(crate) fn without_implied_refusals(&mut self) -> &mut Self {
        self.has_implied_refusals = false;
        self
    }

    /// What a 5XX means, if it is not what it means for all operations with this credential.
    pub(crate) fn fails(&mut self, reason: &str) -> &mut Self {
        self.refusal("5XX", reason)
    }

    fn refusal(&mut self, status: &'static str, reason: &str) -> &mut Self {
        self.response(status, reason, Some((JSON, Some(reference::<ErrorBody>()))))
    }

    /// Adds the refusals that follow from the rest of the declaration, unless they are declared.
    fn add_implied_refusals(&mut self) {
        for (status, reason) in self.implied_refusals() {
            if self.has_implied_refusals && !self.described.responses.responses.contains_key(status) {
                self.refusal(status, reason);
            }
        }
    }

    /// What any operation with such a declaration may be refused for. Not documented are 401, which every operation with a credential
    /// may respond with, and the refusals of callers who call too often.
    fn implied_refusals(&self) -> Vec<Refusal> {
        let mut implied = Vec::new();
        if self.described.request_body.is_some() {
            implied.push(INVALID);
        } else if self.described.parameters.iter().flatten().any(is_query) {
            implied.push(("400", "A parameter breaks a rule"));
        }
        if self.requirement == Requirement::None {
            return implied;
        }
        implied.extend(self.requirement.forbidden().map(|reason| ("403", reason)));
        if self.path.contains('{') {
            implied.push(("404", self.not_found));
        }
        implied.push(("5XX", self.requirement.failed()));
        implied
    }

    /// Returns a new route to the handler.
    pub(crate) fn route(&self) -> Route {
        (self.route)()
    }
}

fn is_query(parameter: &RefOr<Parameter>) -> bool {
    matches!(parameter, RefOr::T(parameter) if matches!(parameter.parameter_in, ParameterIn::Query))
}

/// Removes null from the types of a parameter: an optional one is absent, never null.
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
