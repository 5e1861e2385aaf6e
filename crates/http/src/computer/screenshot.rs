//! `…/computer/screenshot`: a picture of what a session shows.

use casement_domain::browser::Region;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{answer::Answer, caller::SessionAccess, error::ErrorBody, image_response};

/// What to show.
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

/// A PNG.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it stands in the description only; the picture is sent as it is")]
struct Png(Vec<u8>);

/// Takes a picture of a session's display.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/screenshot", tag = "Computer",
    request_body = Screenshot,
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "Exactly of the region's size", body = inline(Png), content_type = "image/png"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn capture_screenshot(mut inside: SessionAccess) -> Answer {
    let wanted = inside.json::<Screenshot>().await?;
    let region =
        |display| wanted.region.map(|part| Region::parse(display, part.x, part.y, part.width, part.height)).transpose();
    let place = image_response::acquire_slot(&inside.session).await?;
    let png = inside.services().sessions.screenshot(&inside.session, region).await?;
    Ok(place.answer("image/png", png))
}
