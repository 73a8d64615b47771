//! Health and reflection, as probes and tools ask for them.

use http_body_util::BodyExt;

use super::{Desk, framed};

const RULES: &str = "rules: []";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

fn service(name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    framed(&[&[0x0a, length], name.as_bytes()].concat())
}

#[tokio::test]
async fn the_services_are_healthy_until_the_process_is_on_its_way_out() {
    let desk = Desk::open(RULES).await;
    let mut client = desk.client().await;
    let rls = "envoy.service.ratelimit.v3.RateLimitService";
    for name in ["", rls, "ratelimit"] {
        let told = client.call(CHECK, service(name), &[]).await;
        assert_eq!((told.code, told.body), (Some(0), framed(&[8, 1])), "{name:?}: SERVING");
    }
    assert_eq!(client.call(CHECK, framed(b""), &[]).await.body, framed(&[8, 1]), "\"\" unsaid");
    assert_eq!(client.call(CHECK, service("other"), &[]).await.code, Some(5), "NOT_FOUND");
    assert_eq!(client.call(CHECK, framed(b"\x0a\x09x"), &[]).await.code, Some(3));
    let list = client.call("/grpc.health.v1.Health/List", framed(b""), &[]).await;
    assert_eq!(list.code, Some(0));
    assert_eq!(list.body.windows(4).filter(|four| *four == b"\x12\x02\x08\x01").count(), 3);
    desk.status.drain();
    assert_eq!(client.call(CHECK, service(""), &[]).await.body, framed(&[8, 2]), "NOT_SERVING");
}

#[tokio::test]
async fn who_watches_is_told_at_once_and_when_it_changes_and_then_the_call_ends() {
    let desk = Desk::open(RULES).await;
    let mut client = desk.client().await;
    let mut known = client.send(WATCH, service("ratelimit"), &[]).await.into_body();
    let mut unknown = client.send(WATCH, service("other"), &[]).await.into_body();
    let next = async |body: &mut hyper::body::Incoming| body.frame().await.unwrap().unwrap();
    assert_eq!(next(&mut known).await.into_data().unwrap(), framed(&[8, 1]));
    assert_eq!(next(&mut unknown).await.into_data().unwrap(), framed(&[8, 3]), "SERVICE_UNKNOWN");
    // Nothing is left that would keep the door from closing.
    desk.stop.send(()).unwrap();
    assert_eq!(next(&mut known).await.into_data().unwrap(), framed(&[8, 2]));
    for body in [&mut known, &mut unknown] {
        let trailers = next(body).await.into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "14", "UNAVAILABLE");
    }
    desk.served.await.unwrap();
    client.connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn reflection_lists_the_services_and_answers_as_often_as_it_is_asked() {
    let desk = Desk::open(RULES).await;
    let mut client = desk.client().await;
    let questions = [
        framed(b"\x3a\x01*"),
        framed(b"\x22\x11grpc.health.v1.He"),
        framed(b"\x22\x15grpc.health.v1.Health"),
        framed(b"\x1a\x1cgrpc/health/v1/health.prot\x6f\x00"),
    ]
    .concat();
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let told = client.call(&path, questions.clone(), &[]).await;
        assert_eq!(told.code, Some(0), "{told:?}");
        let text = String::from_utf8_lossy(&told.body);
        for name in [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert_eq!(text.matches("nothing here has this name").count(), 2, "{text}");
        assert!(text.contains("grpc/health/v1/health.proto"), "the file: {text}");
        let wrong = client.call(&path, framed(b""), &[]).await;
        assert_eq!(wrong.code, Some(3));
    }
}
