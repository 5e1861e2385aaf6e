//! Tests of the HTTP layer, without a browser and without a database.

mod api;
mod relay;
