//! `/auth/context`: what the credential of a request is and opens.

use actix_web::{HttpResponse, http::StatusCode};
use serde::Serialize;

use crate::{
    answer,
    operation::{OTHER_PROJECT, Operations},
    request::{ProjectKey, Request},
    schema::ToSchema,
};

/// What the credential of the request is and opens.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuthContext)]
pub(crate) struct ContextBody {
    authentication: Authentication,
    authorization: Authorization,
    organization: OrganizationReference,
    principal: Principal,
}

/// How the request was authenticated.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuthContextAuthentication)]
struct Authentication {
    /// The id of the API key.
    credential_id: String,
    /// `api_key`.
    method: &'static str,
    /// `api_key`.
    source: &'static str,
}

/// What the credential opens.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuthContextAuthorization)]
struct Authorization {
    /// What the credential opens at most.
    credential_scope: ScopeBody,
    /// What the request selected: the project of the key or of the header.
    effective_scope: ScopeBody,
}

/// A part of the organization.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuthContextScope)]
struct ScopeBody {
    /// The project; null: the whole organization. Requests for resources of a project that name none use the default project.
    project_id: Option<String>,
}

/// The organization of the credential.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuthContextOrganization)]
struct OrganizationReference {
    id: String,
}

/// Who calls.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuthContextPrincipal)]
struct Principal {
    /// The id of the API key.
    id: String,
    /// `api_key`.
    r#type: &'static str,
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("API keys", "The project of the header does not exist");
    api.get("/auth/context", "get_auth_context", get_auth_context)
        .summary("Returns what the key of the request is and opens. Needs no action of a policy.")
        .returns::<ContextBody>()
        .refuses([OTHER_PROJECT, ("404", "The project of the header does not exist")]);
}

async fn get_auth_context(request: Request<ProjectKey>) -> HttpResponse {
    let (key, scope) = (request.key_holder(), request.scope());
    let id = key.key.to_string();
    let body = ContextBody {
        authentication: Authentication { credential_id: id.clone(), method: "api_key", source: "api_key" },
        authorization: Authorization {
            credential_scope: ScopeBody { project_id: key.project.map(|project| project.to_string()) },
            effective_scope: ScopeBody { project_id: (!scope.unscoped).then(|| scope.project_id().to_string()) },
        },
        organization: OrganizationReference { id: key.organization.to_string() },
        principal: Principal { id, r#type: "api_key" },
    };
    answer::record(StatusCode::OK, &body)
}
