# TODO the other rooms
