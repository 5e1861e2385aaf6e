//! The operations of the API. Each resource declares its own with [`Operations`]; the routes, the OpenAPI document, the names in
//! telemetry and the table in `docs/operations.md` are made from the declarations.

use actix_web::{FromRequest, Handler, HttpRequest, Responder, Route, http::Method};
use utoipa::{
    IntoParams, ToSchema,
    openapi::{
        Ref, RefOr, Schema,
        path::{Parameter, ParameterIn},
        schema::ArrayBuilder,
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
pub(crate) type Refusal = (u16, &'static str);

pub(crate) const INVALID: Refusal = (400, "A field breaks a rule");
pub(crate) const ARCHIVED: Refusal = (403, "The project is archived");
pub(crate) const NAME_TAKEN: Refusal = (409, "The name is taken");
pub(crate) const LIMIT_REACHED: Refusal = (429, "A limit is reached");

/// The media types of bodies that are not JSON.
pub(crate) const BYTES: &str = "application/octet-stream";
const FORM: &str = "multipart/form-data";
const EVENTS: &str = "text/event-stream";
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

    /// Who is refused with 403.
    const fn forbidden(self) -> &'static str {
        match self {
            Self::None => "Nobody",
            Self::ProjectKey => "The key does not open the project",
            Self::OrganizationKey => "The key is not one of the organization",
            Self::AnyKey => "The key is one of another project",
            Self::Session => "The credential does not permit this in the session",
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

type SchemaFn = fn() -> RefOr<Schema>;
/// Schemas by their names.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

/// The body of a request or of a response.
pub(crate) struct Body {
    pub(crate) media_type: &'static str,
    pub(crate) schema: Option<SchemaFn>,
}

/// The body of a request.
pub(crate) struct RequestBody {
    pub(crate) body: Body,
    /// A field that this operation requires although the schema does not.
    pub(crate) field: Option<&'static str>,
    /// Whether a body is required although no single field is.
    pub(crate) is_required: bool,
}

/// A header of a response: its name, its schema and its description.
pub(crate) type ResponseHeader = (&'static str, SchemaFn, &'static str);

/// A response in the document.
pub(crate) struct Response {
    pub(crate) status: String,
    pub(crate) description: &'static str,
    pub(crate) body: Option<Body>,
    pub(crate) headers: Vec<ResponseHeader>,
}

/// One operation of the API.
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The name in the document, in telemetry and in client libraries.
    pub(crate) id: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) requirement: Requirement,
    /// Whether the operation has been removed and responds with 410.
    pub(crate) is_removed: bool,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) request: Option<RequestBody>,
    pub(crate) responses: Vec<Response>,
    /// What adds the schemas that the operation refers to.
    pub(crate) schemas: Vec<fn(&mut Schemas)>,
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
        self.all.push(Operation {
            method,
            path,
            id,
            tag: self.tag,
            summary: "",
            description: None,
            requirement: A::Credential::REQUIREMENT,
            is_removed: false,
            parameters: Vec::new(),
            request: None,
            responses: Vec::new(),
            schemas: Vec::new(),
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

/// A reference to the schema of `T`.
fn reference<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

fn list<T: ToSchema>() -> RefOr<Schema> {
    ArrayBuilder::new().items(reference::<T>()).into()
}

/// The names of the parameters in a path.
pub(crate) fn path_parameters(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

/// Adds the schema of `T` and those that it refers to.
fn schemas<T: ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// What the document shows of an operation.
impl Operation {
    pub(crate) fn summary(&mut self, text: &'static str) -> &mut Self {
        self.summary = text;
        self
    }

    pub(crate) fn description(&mut self, text: &'static str) -> &mut Self {
        self.description = Some(text);
        self
    }

    /// Query parameters.
    pub(crate) fn query<T: IntoParams>(&mut self) -> &mut Self {
        self.parameters.extend(T::into_params(|| Some(ParameterIn::Query)));
        self
    }

    /// Headers of the request.
    pub(crate) fn headers<T: IntoParams>(&mut self) -> &mut Self {
        self.parameters.extend(T::into_params(|| Some(ParameterIn::Header)));
        self
    }

    /// A JSON body.
    pub(crate) fn body<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.request_body(JSON, reference::<T>)
    }

    /// A form with files.
    pub(crate) fn form<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.request_body(FORM, reference::<T>)
    }

    /// A body of bytes.
    pub(crate) fn bytes<T: ToSchema>(&mut self) -> &mut Self {
        self.request_body(BYTES, T::schema)
    }

    fn request_body(&mut self, media_type: &'static str, schema: SchemaFn) -> &mut Self {
        let body = Body { media_type, schema: Some(schema) };
        self.request = Some(RequestBody { body, field: None, is_required: false });
        self
    }

    /// A field of the body that this operation requires although the schema does not.
    pub(crate) fn requires_field(&mut self, name: &'static str) -> &mut Self {
        self.request.iter_mut().for_each(|request| request.field = Some(name));
        self
    }

    /// Requires a body although none of its fields is required by itself.
    pub(crate) fn requires_body(&mut self) -> &mut Self {
        self.request.iter_mut().for_each(|request| request.is_required = true);
        self
    }

    /// 200 with a record.
    pub(crate) fn returns<T: ToSchema>(&mut self) -> &mut Self {
        self.responds::<T>(200, "The record")
    }

    /// 201 with the record that was created.
    pub(crate) fn created<T: ToSchema>(&mut self) -> &mut Self {
        self.responds::<T>(201, "Created; `Location` names the record")
    }

    /// A record with this status.
    pub(crate) fn responds<T: ToSchema>(&mut self, status: u16, description: &'static str) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.response(status, description, Some(Body { media_type: JSON, schema: Some(reference::<T>) }))
    }

    /// 200 with a list that has no pages.
    pub(crate) fn returns_list<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.response(200, "All of them", Some(Body { media_type: JSON, schema: Some(list::<T>) }))
    }

    /// 200 with one page of a list, and the parameters and headers that lead through the pages.
    pub(crate) fn returns_page<T: ToSchema>(&mut self) -> &mut Self {
        self.parameters.splice(0..0, PageParams::into_params(|| Some(ParameterIn::Query)));
        self.returns_list::<T>().page_headers()
    }

    /// The headers that lead to the next page.
    pub(crate) fn page_headers(&mut self) -> &mut Self {
        self.header::<bool>("X-Has-More", "Whether there is a next page")
            .header::<u64>("X-Next-Offset", "The offset of the next page; 0 on the last page")
    }

    /// A header of the response that was declared last.
    pub(crate) fn header<T: ToSchema>(&mut self, name: &'static str, description: &'static str) -> &mut Self {
        if let Some(response) = self.responses.last_mut() {
            response.headers.push((name, T::schema, description));
        }
        self
    }

    /// 200 with a stream of events.
    pub(crate) fn streams<T: ToSchema>(&mut self) -> &mut Self {
        self.schemas.push(schemas::<T>);
        self.response(200, "A stream of events", Some(Body { media_type: EVENTS, schema: Some(reference::<T>) }))
    }

    /// 204.
    pub(crate) fn no_content(&mut self, description: &'static str) -> &mut Self {
        self.response(204, description, None)
    }

    /// Content of another media type, whose schema stands in the response itself.
    pub(crate) fn content<T: ToSchema>(
        &mut self,
        status: u16,
        media_type: &'static str,
        description: &'static str,
    ) -> &mut Self {
        self.response(status, description, Some(Body { media_type, schema: Some(T::schema) }))
    }

    /// 200 with a file of bytes.
    pub(crate) fn file(&mut self, description: &'static str) -> &mut Self {
        self.response(200, description, Some(Body { media_type: BYTES, schema: None }))
    }

    fn response(&mut self, status: u16, description: &'static str, body: Option<Body>) -> &mut Self {
        self.responses.push(Response { status: status.to_string(), description, body, headers: Vec::new() });
        self
    }

    /// 410: the operation has been removed, and headers name its successor.
    pub(crate) fn removed(&mut self, reason: &'static str) -> &mut Self {
        self.is_removed = true;
        self.refuses([(410, reason)])
            .header::<String>("Deprecation", "When the operation was deprecated")
            .header::<String>("Sunset", "When the operation was removed")
            .header::<String>("Link", "The successor")
    }

    /// Refusals, besides [those that follow](Self::implied_refusals) from the rest of the declaration.
    pub(crate) fn refuses<const N: usize>(&mut self, refusals: [Refusal; N]) -> &mut Self {
        for (status, reason) in refusals {
            self.refusal(status.to_string(), reason);
        }
        self
    }

    /// What a 5XX means, if it is not what it means for all operations with this credential.
    pub(crate) fn fails(&mut self, reason: &'static str) -> &mut Self {
        self.refusal("5XX".to_owned(), reason);
        self
    }

    fn refusal(&mut self, status: String, description: &'static str) {
        let body = Some(Body { media_type: JSON, schema: Some(reference::<ErrorBody>) });
        self.responses.push(Response { status, description, body, headers: Vec::new() });
    }

    /// Adds the refusals that follow from the credential, the path, the parameters and the body, unless they are declared.
    pub(crate) fn add_implied_refusals(&mut self) {
        for (status, reason) in self.implied_refusals() {
            if !self.responses.iter().any(|response| response.status == status) {
                self.refusal(status, reason);
            }
        }
    }

    fn implied_refusals(&self) -> Vec<(String, &'static str)> {
        let mut implied = Vec::new();
        if self.request.is_some() {
            implied.push(("400".to_owned(), INVALID.1));
        } else if self.parameters.iter().any(|parameter| matches!(parameter.parameter_in, ParameterIn::Query)) {
            implied.push(("400".to_owned(), "A parameter breaks a rule"));
        }
        if self.requirement == Requirement::None {
            return implied;
        }
        implied.push(("401".to_owned(), "The credential is missing or not valid"));
        implied.push(("403".to_owned(), self.requirement.forbidden()));
        if self.path.contains('{') && !self.is_removed {
            implied.push(("404".to_owned(), self.not_found));
        }
        implied.push(("429".to_owned(), "The key calls too often"));
        implied.push(("5XX".to_owned(), self.requirement.failed()));
        implied
    }

    /// Whether the response is a stream of events, which has no HEAD.
    pub(crate) fn is_stream(&self) -> bool {
        self.responses.iter().any(|response| response.body.as_ref().is_some_and(|body| body.media_type == EVENTS))
    }

    /// A new route to the handler.
    pub(crate) fn route(&self) -> Route {
        (self.route)()
    }
}
