//! `/browser_pools`: pools and what is leased from them.

mod acquire;
mod handlers;
mod input;
mod record;

pub(crate) use self::{
    acquire::{__path_acquire_browser, acquire_browser},
    handlers::{
        __path_create_pool, __path_delete_pool, __path_flush_pool, __path_get_pool, __path_list_pools,
        __path_release_browser, __path_update_pool, create_pool, delete_pool, flush_pool, get_pool, list_pools,
        release_browser, update_pool,
    },
    record::PoolBody,
};
