//! Tests the exact replies to the commands that clients send on connect, and protocol errors.

use super::{LOCAL_IP, REMOTE_IP, clock, encode_request, fixture};

const NO_RULES: &str = "rules: []";

#[test]
fn ping_echo_and_select_replies() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    for (command, reply) in [
        ("PING", "+PONG"),
        ("ping", "+PONG"),
        ("PING hello", "$5 hello"),
        ("ECHO hello", "$5 hello"),
        ("SELECT 0", "+OK"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command"),
        ("FOO", "-ERR unknown command 'FOO', with args beginning with: "),
        ("foo a b", "-ERR unknown command 'foo', with args beginning with: 'a' 'b' "),
        ("GET x", "-ERR unknown command 'GET', with args beginning with: 'x' "),
    ] {
        assert_eq!(client.send_command(command), reply, "{command}");
    }
}

#[test]
fn echoed_input_cannot_split_error_line() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let (reply, _) = client.process_now(&encode_request(&[b"FOO\r\n+OK\r\n", b"\xff\r\n"]));
    assert_eq!(reply.matches("\r\n").count(), 1, "{reply}");
    let (reply, _) = client.process_now(&encode_request(&[&[b'x'; 60_000], &[b'y'; 60_000]]));
    assert!(reply.len() < 500, "{}", reply.len());
}

#[test]
fn hello_switches_protocol_version() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let server_info = |open: &str, proto: u8| {
        format!(
            "{open} $6 server $5 redis $7 version $5 7.4.0 $5 proto :{proto} $2 id :7 $4 mode \
             $10 standalone $4 role $6 master $7 modules *0"
        )
    };
    assert_eq!(client.send_command("HELLO"), server_info("*14", 2));
    assert_eq!(client.send_command("HELLO 3"), server_info("%7", 3));
    assert_eq!(client.send_command("CLIENT GETNAME"), "_");
    assert_eq!(
        client.send_command("HELLO"),
        server_info("%7", 3),
        "without a version nothing changes"
    );
    assert_eq!(client.send_command("hello 2 setname joe"), server_info("*14", 2));
    assert_eq!(client.send_command("CLIENT GETNAME"), "$3 joe");
    for (wrong, why) in [
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO 1", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'"),
        ("HELLO 3 AUTH a", "-ERR Syntax error in HELLO option 'AUTH'"),
    ] {
        assert_eq!(client.send_command(wrong), why);
    }
    assert_eq!(
        client.send_command("CLIENT GETNAME"),
        "$3 joe",
        "still RESP2: an invalid HELLO changes nothing"
    );
}

#[test]
fn auth_accepts_token_as_password() {
    let mut client = fixture(&clock(), NO_RULES, REMOTE_IP, Some("secret"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for attempt in ["AUTH wrong", "AUTH default wrong", "AUTH joe secret"] {
        assert_eq!(client.send_command(attempt), wrong, "{attempt}");
    }
    assert_eq!(client.send_command("HELLO 3 AUTH default wrong"), wrong);
    assert!(
        client
            .send_command("TIDEGATE.PEEK ip 1.2.3.4")
            .starts_with("-NOAUTH Authentication required.")
    );
    assert_eq!(client.send_command("AUTH secret"), "+OK");
    assert!(client.send_command("TIDEGATE.PEEK ip 1.2.3.4").starts_with("*16"));
    assert_eq!(client.send_command("RESET"), "+RESET");
    assert!(
        client.send_command("TIDEGATE.PEEK ip 1.2.3.4").starts_with("-NOAUTH"),
        "RESET drops the authentication"
    );
    assert!(client.send_command("HELLO 3 AUTH default secret SETNAME x").starts_with("%7"));
    assert!(client.send_command("TIDEGATE.PEEK ip 1.2.3.4").starts_with("%8"));
    assert_eq!(client.send_command("AUTH a b c"), "-ERR syntax error");
}

#[test]
fn auth_without_configured_token_errors() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    for attempt in ["AUTH x", "AUTH default x", "HELLO 3 AUTH default x"] {
        assert!(
            client.send_command(attempt).starts_with("-ERR AUTH called without any password"),
            "{attempt}"
        );
    }
}

#[test]
fn client_subcommands_reply_like_redis() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    for (command, reply) in [
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
        ("CLIENT SETINFO lib-ver 8.0.0", "+OK"),
        ("CLIENT SETINFO X y", "-ERR Unrecognized option; use LIB-NAME or LIB-VER"),
        ("CLIENT SETNAME worker-1", "+OK"),
        ("CLIENT GETNAME", "$8 worker-1"),
        ("CLIENT ID", ":7"),
        ("CLIENT NO-EVICT ON", "+OK"),
        ("CLIENT NO-TOUCH off", "+OK"),
        ("CLIENT TRACKING ON", "-ERR unknown subcommand 'TRACKING' of CLIENT"),
        ("CLIENT REPLY OFF", "-ERR unknown subcommand 'REPLY' of CLIENT"),
        (
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip",
            "-ERR unknown subcommand 'MAINT_NOTIFICATIONS' of CLIENT",
        ),
    ] {
        assert_eq!(client.send_command(command), reply, "{command}");
    }
    assert!(client.send_command("CLIENT INFO").contains("id=7 addr=127.0.0.1 name=worker-1 db=0"));
    let (reply, _) = client.process_now(&encode_request(&[b"CLIENT", b"SETNAME", b"a b"]));
    assert!(reply.starts_with("-ERR Client names cannot contain"), "{reply}");
    assert_eq!(
        client.send_command("CLIENT"),
        "-ERR wrong number of arguments for 'client' command"
    );
}

#[test]
fn info_command_and_config_replies() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let info = client.send_command("INFO");
    assert!(info.contains("redis_version:7.4.0") && info.contains("loading:0"), "{info}");
    assert!(!client.send_command("INFO server").contains("loading"));
    assert!(client.send_command("info PERSISTENCE").contains("loading:0"));
    assert!(client.send_command("INFO everything").contains("role:master"));
    assert_eq!(client.send_command("COMMAND COUNT"), ":16");
    assert_eq!(client.send_command("COMMAND DOCS"), "*0");
    assert!(
        client.send_command("COMMAND").starts_with("*16 *6 $11 cl.throttle :-5 *1 +fast :1 :1 :1 ")
    );
    assert!(client.send_command("COMMAND LIST").contains("tidegate.check"));
    assert_eq!(
        client.send_command("COMMAND INFO ping nothing"),
        "*2 *6 $4 ping :-1 *1 +fast :0 :0 :0 $-1"
    );
    assert_eq!(client.send_command("CONFIG GET save"), "*2 $4 save $0");
    assert_eq!(
        client.send_command("CONFIG GET save appendonly"),
        "*4 $4 save $0  $10 appendonly $2 no"
    );
    assert_eq!(client.send_command("CONFIG GET maxmemory"), "*0");
    assert_eq!(client.send_command("CONFIG SET save 1"), "-ERR unknown subcommand 'SET' of CONFIG");
    client.send_command("HELLO 3");
    assert_eq!(client.send_command("COMMAND DOCS"), "%0");
    assert_eq!(client.send_command("CONFIG GET appendonly"), "%1 $10 appendonly $2 no");
}

#[test]
fn quit_replies_and_ignores_rest() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let pipeline =
        [encode_request(&[b"PING"]), encode_request(&[b"QUIT"]), encode_request(&[b"PING"])]
            .concat();
    assert_eq!(client.process_now(&pipeline), ("+PONG\r\n+OK\r\n".to_owned(), true));
}

#[test]
fn protocol_error_follows_replies_and_closes() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let reply = client.process_now(b"PING\r\n*1\r\n:1\r\n*1\r\n$4\r\nPING\r\n");
    let error = "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n";
    assert_eq!(reply, (error.to_owned(), true));
}

#[test]
fn browser_request_charges_nothing() {
    let rules = "rules: [{ id: ten, key_by: global, limit: 10/h }]";
    let mut client = fixture(&clock(), rules, LOCAL_IP, None);
    let attack = b"POST / HTTP/1.1\r\nHost: localhost:8083\r\nContent-Length: 40\r\n\r\n\
        TIDEGATE.CHECK ip 1.2.3.4\r\nTIDEGATE.CHECK ip 1.2.3.4\r\n";
    let (reply, ends) = client.process_now(attack);
    assert!(ends && reply.starts_with("-ERR this listener speaks the Redis protocol"), "{reply}");
    assert!(client.send_command("TIDEGATE.PEEK ip 1.2.3.4").contains("remaining :10"));
}

#[test]
fn empty_requests_get_no_reply() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    assert_eq!(client.process_now(b"\r\n*0\r\n*-1\r\n\n"), (String::new(), false));
    assert_eq!(client.process_now(b"PING\r\n\r\nping\n").0, "+PONG\r\n+PONG\r\n");
}

#[test]
fn reply_buffer_is_flushed_at_limit() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let flood = encode_request(&[b"INFO"]).repeat(10_000);
    let mut out = Vec::new();
    let done =
        super::expect_ready(client.api.process_pipeline(&mut client.session, &flood, &mut out));
    assert_eq!(done.next, super::PipelineNext::Continue);
    assert!(out.len() < 16 * 1024, "{}", out.len());
    assert!(done.consumed < flood.len());
}
