//! Tests health checking and reflection, as probes and tools use them.

use http_body_util::BodyExt;

use super::{TestGrpcServer, encode_frame};

const RULES: &str = "rules: []";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

fn encode_service_name(name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    encode_frame(&[&[0x0a, length], name.as_bytes()].concat())
}

#[tokio::test]
async fn services_are_serving_until_drain() {
    let server = TestGrpcServer::start(RULES).await;
    let mut client = server.connect().await;
    let rls = "envoy.service.ratelimit.v3.RateLimitService";
    for name in ["", rls, "ratelimit"] {
        let reply = client.call(CHECK, encode_service_name(name), &[]).await;
        assert_eq!((reply.code, reply.body), (Some(0), encode_frame(&[8, 1])), "{name:?}: SERVING");
    }
    assert_eq!(
        client.call(CHECK, encode_frame(b""), &[]).await.body,
        encode_frame(&[8, 1]),
        "the service name defaults to \"\""
    );
    assert_eq!(
        client.call(CHECK, encode_service_name("other"), &[]).await.code,
        Some(5),
        "NOT_FOUND"
    );
    assert_eq!(client.call(CHECK, encode_frame(b"\x0a\x09x"), &[]).await.code, Some(3));
    let list = client.call("/grpc.health.v1.Health/List", encode_frame(b""), &[]).await;
    assert_eq!(list.code, Some(0));
    assert_eq!(list.body.windows(4).filter(|four| *four == b"\x12\x02\x08\x01").count(), 3);
    server.status.start_drain();
    assert_eq!(
        client.call(CHECK, encode_service_name(""), &[]).await.body,
        encode_frame(&[8, 2]),
        "NOT_SERVING"
    );
}

#[tokio::test]
async fn watch_streams_changes_and_ends_at_shutdown() {
    let server = TestGrpcServer::start(RULES).await;
    let mut client = server.connect().await;
    let mut known = client.send(WATCH, encode_service_name("ratelimit"), &[]).await.into_body();
    let mut unknown = client.send(WATCH, encode_service_name("other"), &[]).await.into_body();
    let next = async |body: &mut hyper::body::Incoming| body.frame().await.unwrap().unwrap();
    assert_eq!(next(&mut known).await.into_data().unwrap(), encode_frame(&[8, 1]));
    assert_eq!(
        next(&mut unknown).await.into_data().unwrap(),
        encode_frame(&[8, 3]),
        "SERVICE_UNKNOWN"
    );
    // The open streams must not delay the shutdown.
    server.stop.send(()).unwrap();
    assert_eq!(next(&mut known).await.into_data().unwrap(), encode_frame(&[8, 2]));
    for body in [&mut known, &mut unknown] {
        let trailers = next(body).await.into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "14", "UNAVAILABLE");
    }
    server.server_task.await.unwrap();
    client.connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn reflection_answers_every_query() {
    let server = TestGrpcServer::start(RULES).await;
    let mut client = server.connect().await;
    let queries = [
        encode_frame(b"\x3a\x01*"),
        encode_frame(b"\x22\x11grpc.health.v1.He"),
        encode_frame(b"\x22\x15grpc.health.v1.Health"),
        encode_frame(b"\x1a\x1cgrpc/health/v1/health.prot\x6f\x00"),
    ]
    .concat();
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let reply = client.call(&path, queries.clone(), &[]).await;
        assert_eq!(reply.code, Some(0), "{reply:?}");
        let text = String::from_utf8_lossy(&reply.body);
        for name in [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert_eq!(text.matches("no such file or symbol").count(), 2, "{text}");
        assert!(text.contains("grpc/health/v1/health.proto"), "the file: {text}");
        let wrong = client.call(&path, encode_frame(b""), &[]).await;
        assert_eq!(wrong.code, Some(3));
    }
}
