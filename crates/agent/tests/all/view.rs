//! The live view of a display.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use casement_agent_protocol::client::AgentClient;
use casement_agent_protocol::view::{FRAME, FrameHead, NextFrame};
use casement_agent_protocol::{ErrorCode, State, Viewport};

use crate::cdp::{Cdp, EMPTY};
use crate::headless::refusal;
use crate::sandbox::{Sandbox, config};

const WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn next(client: &AgentClient, since: Option<u64>) -> Option<(FrameHead, Vec<u8>)> {
    let bytes = client.download(FRAME, &NextFrame { since }, WITHIN).await.unwrap().collect(usize::MAX).await.unwrap();
    FrameHead::from_bytes(&bytes).map(|head| (head, bytes[FrameHead::BYTES..].to_vec()))
}

/// Returns the width, the height and the pixels of a JPEG.
pub(crate) fn decode(jpeg: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut child = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "mjpeg", "-i", "-", "-f", "image2pipe", "-c:v", "ppm", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(jpeg).unwrap();
    let ppm = child.wait_with_output().unwrap().stdout;
    let text = String::from_utf8_lossy(&ppm[..20]).into_owned();
    let mut words = text.split_ascii_whitespace().skip(1).map(|word| word.parse::<u32>());
    let (width, height) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
    let pixels = ppm[ppm.len() - (width * height * 3) as usize..].to_vec();
    (width, height, pixels)
}

/// Requests frames until one is `good`, and returns that frame.
async fn until(
    client: &AgentClient,
    mut since: Option<u64>,
    good: impl Fn(&FrameHead, &[u8]) -> bool,
) -> (FrameHead, Vec<u8>) {
    let deadline = Instant::now() + WITHIN;
    loop {
        if let Some((head, jpeg)) = next(client, since).await {
            since = Some(head.state);
            if good(&head, &jpeg) {
                return (head, jpeg);
            }
        }
        assert!(Instant::now() < deadline, "no such frame");
    }
}

#[tokio::test]
async fn a_viewer_sees_the_whole_display_and_then_what_changes() {
    let mut config = config(false);
    config.start_url = Some(EMPTY.to_owned());
    let sandbox = Sandbox::start(&config);
    let status = sandbox.ready("viewed").await;
    assert_eq!(status.state, State::Ready, "{status:?}");
    let client = sandbox.client().await;
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
    let box_of = |colour: &str| {
        format!(
            "document.body.innerHTML = '<div style=\"position:fixed;left:200px;top:300px;width:40px;height:40px;background:{colour}\">'; 1"
        )
    };
    cdp.evaluate(&page, &box_of("red")).await;

    let began = Instant::now();
    let (head, jpeg) = next(&client, None).await.unwrap();
    println!("a frame of 900 × 700: {:?}, {} bytes", began.elapsed(), jpeg.len());
    assert_eq!((head.width, head.height, head.x, head.y), (900, 700, 0, 0));
    let (width, height, pixels) = decode(&jpeg);
    assert_eq!((width, height), (900, 700));
    // The tab strip is not white like the page: the frame of the window is visible.
    let grey = pixels[(10 * 900 + 600) * 3];
    assert!(grey < 250, "{grey}");

    // Waits until the page is visible and nothing changes any more, and then makes one small change.
    let deadline = Instant::now() + WITHIN;
    let red = |pixels: &[u8]| pixels[(407 * 900 + 220) * 3] > 200 && pixels[(407 * 900 + 220) * 3 + 2] < 60;
    let mut state = loop {
        let (head, jpeg) = next(&client, None).await.unwrap();
        if red(&decode(&jpeg).2) {
            break Some(head.state);
        }
        assert!(Instant::now() < deadline, "the page does not show");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    while let Ok(Some((head, _))) = tokio::time::timeout(Duration::from_secs(3), next(&client, state)).await {
        state = Some(head.state);
    }
    let waiting = Instant::now();
    cdp.evaluate(&page, &box_of("blue")).await;
    let blue = |head: &FrameHead, jpeg: &[u8]| {
        let (width, _, pixels) = decode(jpeg);
        let (x, y) = (220_u32.saturating_sub(head.x.into()), 407_u32.saturating_sub(head.y.into()));
        let at = ((y * width + x) * 3) as usize;
        pixels.get(at..at + 3).is_some_and(|rgb| rgb[0] < 40 && rgb[2] > 200)
    };
    let (part, jpeg) = until(&client, state, blue).await;
    println!("a change of 40 × 40: {:?}, {} bytes at {}, {}", waiting.elapsed(), jpeg.len(), part.x, part.y);
    let (width, height, _) = decode(&jpeg);
    assert!(width < 300 && height < 300, "{width} × {height} for a box of 40");

    // Each of two viewers receives the changes.
    cdp.evaluate(&page, &box_of("red")).await;
    let ((one, _), (other, _)) =
        tokio::join!(until(&client, Some(part.state), |_, _| true), until(&client, Some(part.state), |_, _| true));
    assert!(one.state > part.state && other.state > part.state);

    client.viewport(Viewport { width: 640, height: 480, refresh_rate: 25 }).await.unwrap();
    let resized = until(&client, Some(part.state), |head, _| (head.width, head.height) == (640, 480)).await;
    assert_eq!((resized.0.x, resized.0.y), (0, 0), "all of it");
    sandbox.memory("casement-agent");
}

#[tokio::test]
async fn a_session_without_a_display_has_no_frames_of_one() {
    let sandbox = Sandbox::start(&config(true));
    sandbox.ready("headless").await;
    let refused = sandbox.client().await.download(FRAME, &NextFrame::default(), WITHIN).await;
    assert_eq!(refusal(refused), ErrorCode::NotSupported);
}
