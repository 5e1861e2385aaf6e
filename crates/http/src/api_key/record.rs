//! The record of an API key: masked, except in the response that creates it.

use casement_domain::api_key::{CreatedKey, KeyEntry, masked};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::Moment;

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
