auto folder = "/root/vectors";
