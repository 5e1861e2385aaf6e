//! `/org/api_keys`.

mod handlers;
mod record;

pub(crate) use self::handlers::{
    __path_create_api_key, __path_delete_api_key, __path_get_api_key, __path_list_api_keys, __path_rotate_api_key,
    __path_update_api_key, create_api_key, delete_api_key, get_api_key, list_api_keys, rotate_api_key, update_api_key,
};
