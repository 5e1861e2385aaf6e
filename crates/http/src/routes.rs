//! Which handler answers which path and method.

use actix_web::{
    HttpRequest, HttpResponse, Resource, Route,
    http::{
        Method,
        header::{self, HeaderValue},
    },
    web::{self, ServiceConfig},
};

use crate::error::{ApiError, Code};

/// A path with its methods; other methods are answered here.
struct Path {
    resource: Resource,
    allow: Vec<Method>,
}

fn path(pattern: &str) -> Path {
    Path { resource: web::resource(pattern), allow: vec![Method::OPTIONS] }
}

impl Path {
    fn on<F, Args>(mut self, method: Method, handler: F) -> Self
    where
        F: actix_web::Handler<Args>,
        Args: actix_web::FromRequest + 'static,
        F::Output: actix_web::Responder + 'static,
    {
        if method == Method::GET {
            // The server leaves the body out by itself.
            self.resource = self.resource.route(web::head().to(handler.clone()));
            self.allow.push(Method::HEAD);
        }
        self.resource = self.resource.route(Route::new().method(method.clone()).to(handler));
        self.allow.push(method);
        self
    }

    fn done(mut self, config: &mut ServiceConfig) {
        self.allow.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let allow = self.allow.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let allow = HeaderValue::from_str(&allow).unwrap_or_else(|_| unreachable!("methods are tokens"));
        let options = allow.clone();
        let options = move || {
            let allow = options.clone();
            async move { HttpResponse::NoContent().insert_header((header::ALLOW, allow)).finish() }
        };
        let others = move |request: HttpRequest| {
            let allow = allow.clone();
            async move {
                let message = format!("{} is not possible here", request.method());
                Err::<HttpResponse, _>(ApiError::new(Code::MethodNotAllowed, message).with_header(header::ALLOW, allow))
            }
        };
        config.service(self.resource.route(web::method(Method::OPTIONS).to(options)).default_service(web::to(others)));
    }
}

/// What no route matches.
pub(crate) async fn unknown() -> Result<HttpResponse, ApiError> {
    Err(ApiError::new(Code::RouteNotFound, "there is no such route"))
}

/// All routes.
pub(crate) fn all(config: &mut ServiceConfig) {
    path("/healthz").on(Method::GET, || async { HttpResponse::Ok().finish() }).done(config);
}
