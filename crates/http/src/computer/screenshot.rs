//! `…/computer/screenshot`: a screenshot of a session's display.

use casement_domain::browser::Region;
use serde::Deserialize;

use crate::{
    answer::Answer,
    image_response,
    request::{ActiveSession, Request},
    schema::ToSchema,
};

/// A screenshot to take.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Screenshot {
    /// A part of the display; absent: all of it.
    region: Option<RegionInput>,
}

/// A part of the display, in pixels from its upper left corner. All four are required.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct RegionInput {
    #[schema(required, nullable = false)]
    x: Option<i64>,
    #[schema(required, nullable = false)]
    y: Option<i64>,
    #[schema(required, nullable = false)]
    width: Option<i64>,
    #[schema(required, nullable = false)]
    height: Option<i64>,
}

/// A PNG image.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the image is sent as a file")]
pub(super) struct Png(Vec<u8>);

pub(crate) async fn capture_screenshot(mut request: Request<ActiveSession>) -> Answer {
    let wanted = request.json::<Screenshot>().await?;
    let region =
        |display| wanted.region.map(|part| Region::parse(display, part.x, part.y, part.width, part.height)).transpose();
    let place = image_response::acquire_slot(request.session()).await?;
    let png = request.services().sessions.screenshot(request.session(), region).await?;
    Ok(place.answer("image/png", png))
}
