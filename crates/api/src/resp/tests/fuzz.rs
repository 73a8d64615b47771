//! Fuzzes the RESP API: random commands and bytes get replies of bounded size or close the
//! connection.

use proptest::prelude::*;
use tidegate_testkit::property::{cases, check_property};

use super::{LOCAL_IP, clock, encode_request, fixture};

const RULES: &str = "rules: [{ id: ten, key_by: api_key, limit: 10/h }]";

/// Words with a meaning in the protocol.
const KNOWN: &str = "CL.THROTTLE THROTTLE TIDEGATE.CHECK TIDEGATE.PEEK TIDEGATE.RESET PING ECHO \
    HELLO AUTH SELECT CLIENT COMMAND INFO CONFIG RESET QUIT SETINFO SETNAME GET DOCS COUNT COST RULE \
    ten api_key ip path 2 3 0 1 -1 15 9223372036854775807 /a/../b 203.0.113.7";

/// A known word or random bytes.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<&str> = KNOWN.split(' ').collect();
    prop_oneof![
        8 => prop::sample::select(known).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

#[test]
fn random_commands_yield_bounded_replies() {
    let commands = prop::collection::vec(prop::collection::vec(word(), 0..9), 0..8);
    let broken = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    check_property("resp_api_fuzz", cases() / 10, &(commands, broken), |(commands, broken)| {
        let count = commands.len();
        let mut bytes: Vec<u8> = commands
            .iter()
            .flat_map(|words| encode_request(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        let well_formed = broken.is_empty();
        for (at, byte) in broken {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let mut client = fixture(&clock(), RULES, LOCAL_IP, None);
        let (reply, ends) = client.process_now(&bytes);
        prop_assert!(reply.is_empty() || reply.ends_with("\r\n"));
        prop_assert!(reply.len() < 64 * 1024, "{} bytes to {} commands", reply.len(), count);
        if well_formed && !ends {
            prop_assert!(!reply.contains("Protocol error"));
        }
        Ok(())
    });
}
