//! The routes `/org/api_keys`.

mod handlers;
mod record;

use self::{
    handlers::{CreateApiKey, KeyListParams, RenameApiKey, RotateApiKey},
    record::{ApiKeyBody, CreatedApiKeyBody},
};
use crate::{operation::Operations, query::DeletedParams};

pub(crate) use self::handlers::{create_api_key, delete_api_key, list_api_keys};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("API keys", "The API key does not exist");
    api.post("/org/api_keys", "create_api_key", handlers::create_api_key)
        .summary("Creates an API key. Its text is in this response only.")
        .description("A key never makes one that may do more than itself: not in another project, not longer, and with a policy only within that policy.")
        .body::<CreateApiKey>()
        .created::<CreatedApiKeyBody>();
    api.get("/org/api_keys", "list_api_keys", handlers::list_api_keys)
        .summary("Lists API keys, masked.")
        .query::<KeyListParams>()
        .returns_page::<ApiKeyBody>();
    api.get("/org/api_keys/{id}", "get_api_key", handlers::get_api_key)
        .summary("Returns an API key, masked.")
        .query::<DeletedParams>()
        .returns::<ApiKeyBody>();
    api.patch("/org/api_keys/{id}", "update_api_key", handlers::update_api_key)
        .summary("Renames an API key.")
        .body::<RenameApiKey>()
        .returns::<ApiKeyBody>();
    api.delete("/org/api_keys/{id}", "delete_api_key", handlers::delete_api_key)
        .summary("Revokes an API key: it is refused from now on.")
        .no_content("Revoked")
        .refuses([("409", "The key is the credential of this request")]);
    api.post("/org/api_keys/{id}/rotate", "rotate_api_key", handlers::rotate_api_key)
        .summary("Creates a key with the same name and rights. The old key stays valid for a while.")
        .description(
            "The key of the request must allow at least as much as the key that is replaced, and expire no earlier than the \
             new one. It must also allow `api_keys:update` on the key that is replaced, because that key ends.",
        )
        .body::<RotateApiKey>()
        .created::<CreatedApiKeyBody>();
}
