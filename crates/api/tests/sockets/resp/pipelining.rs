//! Tests pipelining: split input, long pipelines, concurrent connections and protocol errors.

use std::fmt::Write as _;

use tidegate_net::listen;
use tokio::io::AsyncWriteExt;

use super::{TestRespServer, encode_command};

#[tokio::test]
async fn pipelined_commands_are_answered_in_order() {
    let server = TestRespServer::start(listen::Settings::default()).await;
    let mut caller = server.connect().await;
    let mut expected = String::new();
    let mut pipeline = Vec::new();
    for n in 0..5_000 {
        pipeline.extend(encode_command(&format!("ECHO {n}")));
        write!(expected, "${}\r\n{n}\r\n", n.to_string().len()).unwrap();
    }
    pipeline.extend(encode_command("QUIT"));
    caller.send(&pipeline).await;
    assert_eq!(caller.read_to_end().await, expected + "+OK\r\n");
}

/// Splits the stream at every position, and into single bytes.
#[tokio::test]
async fn replies_are_independent_of_segmentation() {
    let server = TestRespServer::start(listen::Settings::default()).await;
    // All commands are peeks, which change nothing, so every run gets the same replies.
    let stream = [
        b"PING\r\n".to_vec(),
        encode_command("CL.THROTTLE a 15 30 60 0"),
        b"\r\n*0\r\necho \"a b\"\n".to_vec(),
        encode_command("TIDEGATE.PEEK ip 203.0.113.7 COST 3"),
        encode_command("QUIT"),
    ]
    .concat();
    let replies_to = async |pieces: Vec<&[u8]>| {
        let mut caller = server.connect().await;
        caller.tcp.set_nodelay(true).unwrap();
        for piece in pieces {
            caller.send(piece).await;
            tokio::task::yield_now().await;
        }
        caller.read_to_end().await
    };
    let whole = replies_to(vec![&stream]).await;
    assert!(whole.starts_with("+PONG\r\n*5\r\n:0") && whole.ends_with("+OK\r\n"), "{whole}");
    for cut in 1..stream.len() {
        assert_eq!(replies_to(vec![&stream[..cut], &stream[cut..]]).await, whole, "cut at {cut}");
    }
    assert_eq!(replies_to(stream.chunks(1).collect()).await, whole);
}

#[tokio::test]
async fn protocol_error_arrives_without_reset() {
    let server = TestRespServer::start(listen::Settings::default()).await;
    let mut caller = server.connect().await;
    let mut bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    bytes.extend(vec![b'x'; 100_000]);
    caller.send(&bytes).await;
    let reply = caller.read_to_end().await;
    assert!(reply.starts_with("-ERR this listener speaks the Redis protocol"), "{reply}");
    assert_eq!(reply.matches("\r\n").count(), 1);
}

/// 200 connections with pipelines are admitted exactly up to the size of the bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_pipelines_admit_exactly_the_limit() {
    for limit in [1_u32, 7, 199, 1_000, 1_999] {
        let server = TestRespServer::start(listen::Settings::default()).await;
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let mut caller = server.connect().await;
            let throttle =
                encode_command(&format!("CL.THROTTLE all {} 1 3600", limit - 1)).repeat(10);
            callers.spawn(async move {
                caller.send(&[throttle, encode_command("QUIT")].concat()).await;
                caller.read_to_end().await.matches("*5\r\n:0\r\n").count()
            });
        }
        let admitted: usize = callers.join_all().await.into_iter().sum();
        assert_eq!(admitted, limit as usize);
    }
}

/// A client writes but never reads: the server buffers a bounded amount and then stops reading.
#[tokio::test]
async fn non_reading_client_is_back_pressured() {
    let server = TestRespServer::start(listen::Settings::default()).await;
    let mut caller = server.connect().await;
    let flood = encode_command("INFO").repeat(1_000);
    let mut written = 0;
    // The kernel buffers take a few megabytes on each side.
    while written < 256 << 20 {
        let writing = caller.tcp.write(&flood);
        match tokio::time::timeout(std::time::Duration::from_millis(500), writing).await {
            Ok(count) => written += count.unwrap(),
            Err(_) => break,
        }
    }
    assert!(written < 64 << 20, "the server read {written} bytes from a client that reads nothing");
    let mut other = server.connect().await;
    other.send(&encode_command("PING")).await;
    assert_eq!(other.read_until(b"\r\n").await, "+PONG\r\n");
}
