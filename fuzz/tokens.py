"""Words of each target's language, which mutation by bytes alone would hardly ever spell."""

from __future__ import annotations

JSON = [
    b"{", b"}", b"[", b"]", b":", b",", b'"', b"'", b"\\", b"\\u0000", b"\\ud83d", b"\\ude00", b"\\u0001", b"\\/",
    b"null", b"true", b"false", b"{}", b"[]", b'""', b"0", b"-1", b"1.5", b"1e9", b"NaN", b"{0:", b"{{", b"}:", b"/*",
    b"*/", b"//", b"\n", b"\x00", b"\xef\xbb\xbf", b"\xff", b"\xc3\xa4", b"\xed\xa0\x80", b"[[[[[[[[", b'{"a":' * 8,
    b'{"$ref":"$"}', b'{"$ref":"$.a"}', b'{"$ref":".."}', b'{"$ref":"@"}', b'{"$ref":"$.offsetTable[0]"}',
]  # fmt: skip
HEADER = [
    b'"code":', b'"language":', b'"version":', b'"opaque":', b'"flag":', b'"remark":', b'"extFields":', b'"(body)":1,',
    b'"(serialize)":1,', b'"serializeTypeCurrentRPC":"JSON"', b'"JAVA"', b'"GO"', b'"queueId"', b'"topic":"T",',
    b"\x00\x05topic\x00\x00\x00\x01T", b"\x00\x00", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff",
    b"\x00\x01a\x00\x00\x00\x01b",
]  # fmt: skip
BODY = [
    b'"offsetTable":', b'"brokerName":"b"', b'"queueId":0', b'"topic":"t"',
    b'{"brokerName":"b","queueId":0,"topic":"t"}:',
    b'{"brokerName":"b","queueId":0,"topic":"t"}', b'"dataVersion":{"counter":1},', b'"table":{', b'"codeSet":["65"]',
    b'"CLUSTERING"', b"78da",
]  # fmt: skip
RECORD = [
    b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94", b"\x00\x00\x00\x30", b"\x00\x00\x00\x01",
    b"\x00\x00\x03\x01", b"\x00\x00\x02\x01", b"\x00\x00\x01\x01", b"\x00\x00\x00\xc0", b"__CRC32#\x01", b"\x78\x9c",
    b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd",
]  # fmt: skip
POLICY = [
    b'"policies":[', b'"entries":[', b'"actions":["Pub"]', b'"All"', b'"Any"', b'"decision":"Deny"', b'"Allow"',
    b"Topic:", b"Group:", b"Cluster:", b"Namespace:", b"*", b"User:", b'"subject":"User:a"', b'"resource":"Topic:a*"',
    b'"policyType":"Default"', b'"sourceIps":["10.0.0.0/8"]', b"::/0", b"/32", b"/33", b"%eth0", b"::ffff:1.2.3.4",
]  # fmt: skip
ACCOUNT = [
    b"accounts:\n", b"- accessKey: ", b"\n  secretKey: ", b"\n  admin: true", b"\n  topicPerms: [", b"a=PUB|SUB",
    b"=DENY", b"\n  groupPerms:\n  - ", b"\n  defaultTopicPerm: ", b"\n  whiteRemoteAddress: ",
    b"globalWhiteRemoteAddresses:\n- ", b"dataVersion: [{counter: 1, timestamp: 2}]", b"&a ", b"*a",
    b"!!org.apache.rocketmq.common.PlainAccessConfig ", b"? ", b"| \n", b">-\n", b"---\n", b"...\n", b"{", b"}", b"[",
    b"]", b"'", b'"', b"# ", b"\n", b"\t", b"~", b"null", b"yes", b"0x12", b"00123456", b"1e5000", b".inf", b"<<: ",
    b"%YAML 1.1\n", b"\\x", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8",
]  # fmt: skip
ADDRESS = [
    b"10.0.0.1", b"*", b"*.*.*.*", b"1-20", b"{1,2}", b"{", b"}", b",", b"-", b".", b"::", b":", b"ffff", b"fe80::1",
    b"255", b"256", b"%eth0", b"::ffff:1.2.3.4", b"/8", b"*:*:*:*:*:*:*:*", b" ", b"0", b"00", b"\xef\xbc\x91",
]  # fmt: skip
PROPERTY = [
    b"\x01", b"\x02", b"\x01\x02", b"\x02\x01", b"\x01\x01", b"\x02\x02", b"KEYS\x01", b"TAGS\x01", b"UNIQ_KEY\x01",
    b"WAIT\x01true\x02", b"DELAY\x013", b"\xff", b"\xc3", b"\xc3\xa4", b" ", b"__CRC32#\x010123456789\x02",
    b"0A00000100002A9F", b"C0A8010A04D218B4AAC247B760000001",
]  # fmt: skip
FILTER = [
    b" AND ", b" OR ", b"NOT ", b" BETWEEN ", b" IN ", b" IS NULL", b" IS NOT NULL", b" CONTAINS ", b" STARTSWITH ",
    b" ENDSWITH ", b"TRUE", b"false", b"NULL", b"=", b"<>", b">", b">=", b"<", b"<=", b"(", b")", b",", b"-", b"+",
    b"'x'", b"''", b"'it''s'", b"a", b"b", b"$_", b"TAGS", b"5", b"10.5", b".5e3", b"1e400", b"2147483648", b"9L",
    b"9223372036854775808", b"--", b"\n", b"/*", b"*/", b"((((((((", b"NOT NOT NOT NOT ", b"----", b"a = 5 AND " * 20,
    b"\xc3\xa4", b"\xff",
]  # fmt: skip
