//! The operations of the API. Each resource declares its operations with [`Operations`]; the routes, the OpenAPI
//! document, the names in telemetry and the table in `docs/operations.md` are generated from the declarations.
//!
//! What only the document says of an operation is kept with the feature `openapi` (`described`) and else dropped
//! (`undescribed`).

#[cfg(any(test, feature = "openapi"))]
mod described;
#[cfg(not(any(test, feature = "openapi")))]
mod undescribed;

use actix_web::{FromRequest, Handler, HttpRequest, Responder, Route, http::Method};

#[cfg(any(test, feature = "openapi"))]
use self::described::Description;
#[cfg(not(any(test, feature = "openapi")))]
use self::undescribed::Description;
use crate::{
    error::ApiError,
    request::{Credential, Request},
};

/// A refusal in the document: its status and the reason.
pub(crate) type Refusal = (&'static str, &'static str);

pub(crate) const OTHER_PROJECT: Refusal = ("403", "The key does not open the project");
pub(crate) const ARCHIVED: Refusal = ("403", "The project is archived");
pub(crate) const NAME_TAKEN: Refusal = ("409", "The name is taken");
pub(crate) const LIMIT_REACHED: Refusal = ("429", "A limit is reached");

/// The media type of bodies of bytes.
pub(crate) const BYTES: &str = "application/octet-stream";

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

/// The arguments of a handler. Their types name the credential that the handler requires.
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

/// One operation of the API.
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The name in the document, in telemetry and in client libraries.
    pub(crate) id: &'static str,
    pub(crate) requirement: Requirement,
    /// Whether the response is a stream of events, for which HEAD is not supported.
    pub(crate) is_stream: bool,
    /// What the document says of it.
    #[cfg_attr(not(any(test, feature = "openapi")), expect(dead_code, reason = "it is empty"))]
    pub(crate) description: Description,
    route: Box<dyn Fn() -> Route>,
}

/// The declared operations.
#[derive(Default)]
pub(crate) struct Operations {
    pub(crate) all: Vec<Operation>,
    tag: &'static str,
    not_found: &'static str,
}

impl Operations {
    /// Begins the operations of a resource. `tag` is their tag in the document, `not_found` the reason of a 404 for
    /// paths with parameters.
    pub(crate) fn resource(&mut self, tag: &'static str, not_found: &'static str) {
        self.tag = tag;
        self.not_found = not_found;
    }

    /// Returns the operations that these functions declare.
    pub(crate) fn declared_by(resources: &[fn(&mut Self)]) -> Self {
        let mut api = Self::default();
        for declare in resources {
            declare(&mut api);
        }
        api
    }

    fn add(
        &mut self,
        method: Method,
        path: &'static str,
        id: &'static str,
        requirement: Requirement,
        route: Box<dyn Fn() -> Route>,
    ) -> &mut Operation {
        let description = Description::new(path, id, self.tag, self.not_found);
        self.all.push(Operation { method, path, id, requirement, is_stream: false, description, route });
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
                    let route = Box::new(move || Route::new().to(handler.clone()));
                    self.add(Method::$method, path, id, A::Credential::REQUIREMENT, route)
                }
            )*
        }
    };
}

methods! { get GET, post POST, put PUT, patch PATCH, delete DELETE, }

impl Operation {
    /// Returns a new route to the handler.
    pub(crate) fn route(&self) -> Route {
        (self.route)()
    }
}
