//! The record of an API key: masked, except in the response that creates it.

use casement_domain::{
    api_key::{CreatedKey, KeyEntry, masked},
    permission::{Policy, Statement},
};
use serde::Serialize;

use crate::{answer::Moment, schema::ToSchema};

/// The creator of a key.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MakerBody {
    id: String,
    /// The e-mail address; may be empty.
    email: String,
    name: Option<String>,
}

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiKeyBody {
    id: String,
    /// A label for people; not unique.
    name: String,
    /// `csk_<id>_****` and the last four characters.
    masked_key: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    created_by: MakerBody,
    /// The time from which the key is refused; null: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Moment>,
    /// The time of the deletion; null: the key is not deleted.
    #[schema(value_type = Option<String>, format = DateTime)]
    deleted_at: Option<Moment>,
    /// The only project that the key opens; null: all projects of the organization.
    project_id: Option<String>,
    project_name: Option<String>,
    /// What the key allows; absent: everything in its scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<KeyPolicyBody>,
}

/// What a key allows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKeyPolicy)]
struct KeyPolicyBody {
    /// The allowed actions. Whatever no statement allows is refused.
    statements: Vec<KeyStatementBody>,
}

/// An allowed action on a resource.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKeyStatement)]
struct KeyStatementBody {
    /// A kind of resource and a verb, as `browsers:use`.
    action: String,
    /// The resource, as `projects/<project>/browsers/*`.
    resource: String,
}

impl From<Policy> for KeyPolicyBody {
    fn from(policy: Policy) -> Self {
        let statement = |one: &Statement| KeyStatementBody { action: one.action(), resource: one.resource() };
        Self { statements: policy.statements().iter().map(statement).collect() }
    }
}

impl From<KeyEntry> for ApiKeyBody {
    fn from(entry: KeyEntry) -> Self {
        let KeyEntry { key, created_by, project_name } = entry;
        Self {
            id: key.id.to_string(),
            name: key.name.as_str().to_owned(),
            masked_key: masked(key.id, &key.last4),
            created_at: Moment(key.created_at),
            created_by: MakerBody { id: created_by.id.to_string(), email: created_by.email, name: created_by.name },
            expires_at: key.expires_at.map(Moment),
            deleted_at: key.deleted_at.map(Moment),
            project_id: key.project.map(|id| id.to_string()),
            project_name,
            policy: key.policy.map(KeyPolicyBody::from),
        }
    }
}

/// A new key.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedApiKeyBody {
    #[serde(flatten)]
    entry: ApiKeyBody,
    /// The key itself, in this response only.
    key: String,
}

impl From<(KeyEntry, CreatedKey)> for CreatedApiKeyBody {
    fn from((entry, made): (KeyEntry, CreatedKey)) -> Self {
        Self { entry: entry.into(), key: made.secret.key_text(made.key.id) }
    }
}
